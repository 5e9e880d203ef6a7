import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A namenode and a datanode of HDFS in one process; they end with the pipe to their parent. */
public class Hdfs {
    public static void main(String[] arguments) throws Exception {
        Configuration conf = new Configuration();
        conf.set("hadoop.http.staticuser.user", System.getProperty("user.name"));
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf, new File(arguments[0])).build();
        cluster.waitActive();
        int http = cluster.getNameNode().getHttpAddress().getPort();
        System.out.println("ports " + http + " " + cluster.getNameNodePort());
        while (System.in.read() >= 0) { }
        System.exit(0);
    }
}
