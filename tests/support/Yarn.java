import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.nodemanager.NodeManager;
import org.apache.hadoop.yarn.server.resourcemanager.ResourceManager;

/** A resource manager or a node manager of YARN; it ends with the pipe to its parent. */
public class Yarn {
    public static void main(String[] arguments) throws Exception {
        var service = arguments[0].equals("node") ? new NodeManager() : new ResourceManager();
        try {
            service.init(new YarnConfiguration());
            service.start();
        } catch (Throwable problem) {
            problem.printStackTrace();
            System.exit(1);
        }
        System.out.println("ready " + System.getProperty("java.home"));
        while (System.in.read() >= 0) { }
        // The containers of a node. In order, it takes leave of the resource manager first, and waits for one
        // that has ended.
        ProcessHandle.current().descendants().forEach(ProcessHandle::destroyForcibly);
        System.exit(0);
    }
}
