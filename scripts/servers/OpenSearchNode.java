import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** A node of OpenSearch from its jars, which have no launcher: its settings are the arguments, as name=value. */
class OpenSearchNode extends Node {
  OpenSearchNode(Settings settings) {
    super(
        InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "node"),
        List.of(Netty4Plugin.class),
        false);
  }

  public static void main(String[] arguments) throws Exception {
    Settings.Builder settings = Settings.builder();
    for (String each : arguments) {
      String[] parts = each.split("=", 2);
      settings.put(parts[0], parts[1]);
    }
    Node node = new OpenSearchNode(settings.build()).start();
    CountDownLatch ended = new CountDownLatch(1);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      try {
        node.close();
      } catch (Exception error) {
        error.printStackTrace();
      }
      ended.countDown();
    }));
    ended.await();
  }
}
