"""What people see of a job: the live view (`view`), the program `penstock top` (`top`), the last lines (`summary`)."""
