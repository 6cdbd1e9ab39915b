import java.util.HashMap;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Copies bids from topic to topic, four columns of seven, exactly once, up to the topic's end.
 *
 * <p>Arguments are name=value: servers, from, to (run n writes to the topic with n behind its name), runs. Prints a
 * line of JSON a run.
 */
public class KafkaCopyFlink {
  public static void main(String[] given) throws Exception {
    Map<String, String> args = new HashMap<>();
    for (String each : given) args.put(each.split("=", 2)[0], each.split("=", 2)[1]);
    String kafka = "'connector' = 'kafka', 'format' = 'json', 'properties.bootstrap.servers' = '" + args.get("servers") + "', ";
    for (int run = 1; run <= Integer.parseInt(args.get("runs")); run++) {
      Configuration conf = new Configuration();
      conf.setString("taskmanager.memory.managed.size", "512m");
      conf.setString("execution.checkpointing.interval", "5s");
      StreamTableEnvironment tables =
          StreamTableEnvironment.create(StreamExecutionEnvironment.createLocalEnvironment(2, conf));
      String columns = "auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3)";
      tables.executeSql("CREATE TEMPORARY TABLE given (" + columns + ") WITH (" + kafka + "'topic' = '"
          + args.get("from") + "', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')");
      tables.executeSql("CREATE TEMPORARY TABLE copied (" + columns + ") WITH (" + kafka + "'topic' = '"
          + args.get("to") + run + "', 'key.format' = 'raw', 'key.fields' = 'auction', 'properties.transaction.timeout.ms'"
          + " = '600000', 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'copy"
          + System.currentTimeMillis() + "')");
      long took = tables.executeSql("INSERT INTO copied SELECT * FROM given").getJobClient().get()
          .getJobExecutionResult().get().getNetRuntime();
      System.out.println("{\"job_ms\": " + took + "}");
    }
    System.exit(0);
  }
}
