import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Writes the messages of Debezium Engine about a database of PostgreSQL: a line a message with its topic, key and value,
 * separated by tabs; \N is null. It ends after the message that contains a given text.
 *
 * <p>Arguments: port, database, slot, file, whether messages have their schema, the text, then settings NAME=VALUE.
 */
public class RecordDebezium {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("name", "recorded");
        settings.setProperty("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        settings.setProperty("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
        settings.setProperty("plugin.name", "pgoutput");
        settings.setProperty("topic.prefix", "shop");
        settings.setProperty("database.hostname", "127.0.0.1");
        settings.setProperty("database.port", arguments[0]);
        settings.setProperty("database.user", "postgres");
        settings.setProperty("database.password", "none");
        settings.setProperty("database.dbname", arguments[1]);
        settings.setProperty("slot.name", arguments[2]);
        settings.setProperty("publication.name", arguments[2]);
        settings.setProperty("key.converter.schemas.enable", arguments[4]);
        settings.setProperty("value.converter.schemas.enable", arguments[4]);
        for (int each = 6; each < arguments.length; each++) {
            String[] pair = arguments[each].split("=", 2);
            settings.setProperty(pair[0], pair[1]);
        }
        AtomicInteger status = new AtomicInteger(0);
        try (PrintWriter out = new PrintWriter(arguments[3], StandardCharsets.UTF_8)) {
            DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(settings)
                .using((ok, message, error) -> {
                    out.flush();
                    if (!ok) {
                        System.err.println(message + ": " + error);
                    }
                    System.exit(ok ? 0 : 1);
                })
                .notifying(event -> {
                    String value = event.value();
                    out.println(event.destination() + "\t" + text(event.key()) + "\t" + text(value));
                    if (value != null && value.contains(arguments[5])) {
                        out.flush();
                        Runtime.getRuntime().halt(0);
                    }
                })
                .build();
            engine.run();
        }
    }

    private static String text(String of) {
        return of == null ? "\\N" : of;
    }
}
