import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.CloseableIterator;

/**
 * A program of Flink SQL: reads a topic in Debezium's envelope up to its end as a table that has no key, so that a row
 * goes only by an event that says all of it, and prints what a query has in the end: a row a line, with how often it is
 * there.
 */
public class FlinkRows {
    public static void main(String[] args) throws Exception {
        String servers = args[0], topic = args[1], columns = args[2], query = args[3];
        Configuration settings = new Configuration();
        settings.setString("table.local-time-zone", "UTC");
        settings.setString("parallelism.default", "1");
        TableEnvironment tables = TableEnvironment.create(
            EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
        tables.executeSql("CREATE TEMPORARY TABLE changes (" + columns + ") WITH ('connector' = 'kafka'"
            + ", 'topic' = '" + topic + "', 'properties.bootstrap.servers' = '" + servers + "'"
            + ", 'properties.isolation.level' = 'read_committed', 'scan.startup.mode' = 'earliest-offset'"
            + ", 'scan.bounded.mode' = 'latest-offset', 'format' = 'debezium-json'"
            + ", 'debezium-json.timestamp-format.standard' = 'ISO-8601')");
        Map<String, Integer> counts = new TreeMap<>();
        try (CloseableIterator<Row> rows = tables.executeSql(query).collect()) {
            while (rows.hasNext()) {
                Row row = rows.next();
                boolean added = row.getKind() == RowKind.INSERT || row.getKind() == RowKind.UPDATE_AFTER;
                StringBuilder text = new StringBuilder();
                for (int at = 0; at < row.getArity(); at++) {
                    text.append(at == 0 ? "" : "|").append(row.getField(at));
                }
                counts.merge(text.toString(), added ? 1 : -1, Integer::sum);
            }
        }
        counts.forEach((text, count) -> {
            if (count != 0) System.out.println("ROW " + count + " " + text);
        });
    }
}
