"""WordCount: a running count of every word in a stream of sentences."""

import penstock as ps

VOCABULARY = ["the", "river", "runs", "past", "mill", "and", "turns", "its", "wheel", "slowly", "at", "dawn"]


@ps.op(schema="word string")
def words(sentence):
    return sentence.value.split(" ")


counts = (
    ps.stream("sentences", ps.generator(ps.fields.words(VOCABULARY, 10, zipf=1.0), rate=2, format="text"))
    .flat_map(words)
    .key_by("word")
    .count()  # without a window: the count so far, sent on whenever it changes
    .to(ps.console())
)

if __name__ == "__main__":
    ps.run(counts, name="wordcount")
