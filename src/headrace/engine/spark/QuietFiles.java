import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * The local file system under a scheme of its own, without child processes: Hadoop starts a chmod for every file
 * that it creates and a readlink for every rename where its native library is missing, as it is in PySpark from pip.
 * Names are as Hadoop's own: the same folder can be read through "file:" later. Janino compiles this at start.
 */
public class QuietFiles extends RawLocalFileSystem {
    public static final String SCHEME = "headrace";

    public URI getUri() {
        return URI.create(SCHEME + ":///");
    }

    public String getScheme() {
        return SCHEME;
    }

    public void setPermission(Path path, FsPermission permission) throws IOException {
        String symbols = permission.getUserAction().SYMBOL
            + permission.getGroupAction().SYMBOL
            + permission.getOtherAction().SYMBOL;
        Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(symbols));
    }

    /** Nothing under a checkpoint is a symbolic link; the real class asks a process about each. */
    public FileStatus getFileLinkStatus(Path path) throws IOException {
        return getFileStatus(path);
    }
}
