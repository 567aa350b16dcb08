import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/** The Yahoo workload on Kafka Streams, in its own language; Java compiles this file when it starts it. */
public class KafkaStreamsYahoo {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration WINDOW = Duration.ofSeconds(10);
    private static final Duration GRACE = Duration.ofSeconds(1);

    /** An event, parsed once: its time is read off it, too. */
    private record Event(String ad, String type, long timeMs) {
        static Event of(String topic, byte[] line) {
            try {
                JsonNode found = JSON.readTree(line);
                return new Event(
                    found.get("ad_id").asText(), found.get("event_type").asText(), found.get("event_time").asLong());
            } catch (IOException error) {
                throw new IllegalArgumentException(error);
            }
        }
    }

    public static void main(String[] arguments) throws IOException {
        JsonNode spec = JSON.readTree(new File(System.getenv("PENSTOCK_SPEC")));
        Map<String, String> campaigns = new HashMap<>();
        spec.get("ads").fields().forEachRemaining(each -> campaigns.put(each.getKey(), each.getValue().asText()));
        Deserializer<Event> parse = Event::of;
        Serde<Event> events = Serdes.serdeFrom((topic, event) -> null, parse);
        StreamsBuilder builder = new StreamsBuilder();
        WindowBytesStoreSupplier store =
            Stores.inMemoryWindowStore("counts", WINDOW.plus(GRACE), WINDOW, false);
        builder
            .stream(
                spec.get("events").asText(),
                Consumed.with(Serdes.ByteArray(), events)
                    .withTimestampExtractor((record, before) -> ((Event) record.value()).timeMs()))
            .filter((key, event) -> event.type().equals("view"))
            .map((key, event) -> KeyValue.pair(campaigns.get(event.ad()), ""))
            .filter((campaign, nothing) -> campaign != null)
            .groupByKey(Grouped.with("campaign", Serdes.String(), Serdes.String()))
            .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE))
            .count(Materialized.<String, Long>as(store).withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .map(
                (window, count) ->
                    KeyValue.pair(
                        window.key(),
                        "[\"" + window.key() + "\"," + 1000 * window.window().start() + "," + count + "]"))
            .to(spec.get("results").asText(), Produced.with(Serdes.String(), Serdes.String()));
        Properties settings = new Properties();
        settings.put("application.id", "bench-" + spec.get("events").asText());
        settings.put("bootstrap.servers", spec.get("servers").asText());
        settings.put("state.dir", spec.get("out").asText() + "/streams");
        spec.get("settings").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(2))));
        streams.start();
    }
}
