import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/** A program of Kafka Streams: reads a changelog as a table, and counts the table's rows, exactly once. */
public class CountRows {
    public static void main(String[] args) {
        String servers = args[0], changelog = args[1], counts = args[2], folder = args[3];
        Properties settings = new Properties();
        settings.put("application.id", counts);
        settings.put("bootstrap.servers", servers);
        settings.put("state.dir", folder);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "100");
        settings.put("replication.factor", "1");
        settings.put("auto.offset.reset", "earliest");
        var text = Serdes.String();
        StreamsBuilder builder = new StreamsBuilder();
        builder.table(changelog, Consumed.with(text, text))
            .groupBy((key, value) -> KeyValue.pair("rows", value), Grouped.with(text, text))
            .count()
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(counts, Produced.with(text, text));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
