import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.DebeziumEngine.RecordCommitter;
import io.debezium.engine.format.Json;
import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Properties;

/**
 * Reads changes of PostgreSQL from a slot with Debezium Engine, and writes each event as a line of JSON to a file, until
 * there were as many as expected. Prints the seconds from the start of the engine to the last event, and the seconds of
 * processor time.
 *
 * <p>Arguments: port, slot, publication, file, number of events, then settings NAME=VALUE.
 */
public class DebeziumChanges {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("name", "bench");
        settings.setProperty("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        settings.setProperty("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
        settings.setProperty("plugin.name", "pgoutput");
        settings.setProperty("publication.autocreate.mode", "disabled");
        settings.setProperty("snapshot.mode", "no_data");
        settings.setProperty("topic.prefix", "bench");
        settings.setProperty("database.hostname", "127.0.0.1");
        settings.setProperty("database.port", arguments[0]);
        settings.setProperty("database.user", "postgres");
        settings.setProperty("database.password", "none");
        settings.setProperty("database.dbname", "postgres");
        settings.setProperty("slot.name", arguments[1]);
        settings.setProperty("publication.name", arguments[2]);
        settings.setProperty("key.converter.schemas.enable", "false");
        settings.setProperty("value.converter.schemas.enable", "false");
        settings.setProperty("tombstones.on.delete", "false");
        for (int each = 5; each < arguments.length; each++) {
            String[] pair = arguments[each].split("=", 2);
            settings.setProperty(pair[0], pair[1]);
        }
        long wanted = Long.parseLong(arguments[4]);
        OutputStream out = new BufferedOutputStream(new FileOutputStream(arguments[3]), 1 << 20);
        long began = System.nanoTime();
        DebeziumEngine.ChangeConsumer<ChangeEvent<String, String>> consumer = new DebeziumEngine.ChangeConsumer<>() {
            private long seen = 0;

            @Override
            public void handleBatch(
                    List<ChangeEvent<String, String>> events,
                    RecordCommitter<ChangeEvent<String, String>> committer) throws InterruptedException {
                try {
                    for (ChangeEvent<String, String> event : events) {
                        out.write(event.value().getBytes(StandardCharsets.UTF_8));
                        out.write('\n');
                        committer.markProcessed(event);
                    }
                    committer.markBatchFinished();
                    seen += events.size();
                    if (seen >= wanted) {
                        out.close();
                        var machine = (com.sun.management.OperatingSystemMXBean)
                            ManagementFactory.getOperatingSystemMXBean();
                        System.out.println(
                            "TOOK " + (System.nanoTime() - began) / 1e9 + " " + machine.getProcessCpuTime() / 1e9);
                        System.out.flush();
                        Runtime.getRuntime().halt(0);
                    }
                } catch (java.io.IOException error) {
                    throw new IllegalStateException(error);
                }
            }
        };
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(settings)
            .using((ok, message, error) -> {
                System.err.println(message + ": " + error);
                Runtime.getRuntime().halt(1);
            })
            .notifying(consumer)
            .build();
        engine.run();
    }
}
