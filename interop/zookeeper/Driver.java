/* SPDX-License-Identifier: Apache-2.0
 *
 * Curator behind one line in, one line out (interop/README.md has the protocol).
 *
 * Curator's owner is a thread, so every owner named in an ID gets a thread of its own that carries
 * out its commands in order; a blocked acquire blocks only that owner. `loop ID SECONDS` acquires
 * and releases as fast as it can, for the benchmarks.
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Collection;
import java.util.Deque;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryNTimes;

public final class Driver {
    private static final TimeUnit MS = TimeUnit.MILLISECONDS;
    private static final Map<String, CuratorFramework> clients = new ConcurrentHashMap<>();
    private static final Map<String, Worker> workers = new ConcurrentHashMap<>();
    private static final Map<String, Handle> handles = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] word = line.trim().split(" +");
            if (word[0].equals("die"))
                Runtime.getRuntime().halt(137);
            String id = word[1];
            String owner = id.contains(".") ? id.substring(0, id.lastIndexOf('.')) : id;
            workers.computeIfAbsent(owner, o -> new Worker()).queue.add(() -> answer(id, word));
        }
        Runtime.getRuntime().halt(0);
    }

    private static final class Worker extends Thread {
        final LinkedBlockingQueue<Runnable> queue = new LinkedBlockingQueue<>();

        Worker() {
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            try {
                while (true)
                    queue.take().run();
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private static void answer(String id, String[] word) {
        String status = "ok";
        String words;
        try {
            words = serve(id, word);
            if (words == null) {
                status = "busy";
                words = "";
            }
        } catch (Exception e) {
            status = "error";
            words = e.getClass().getSimpleName() + " " + e.getMessage();
        }
        synchronized (System.out) {
            System.out.println((id + " " + status + " " + System.nanoTime() / 1000 + " " + words)
                    .replace('\n', ' ').trim());
            System.out.flush();
        }
    }

    /* null: busy */
    private static String serve(String id, String[] word) throws Exception {
        switch (word[0]) {
        case "open":
            return open(id, word[2], word[3], word[4]);
        case "close":
            clients.remove(id).close();
            return "";
        case "lock":
            String client = id.substring(0, id.indexOf('.'));
            handles.put(id, new Handle(clients.get(client), word));
            return "";
        case "acquire":
            return handles.get(id).acquire(Long.parseLong(word[2]), permits(word, 3)) ? "" : null;
        case "release":
            handles.get(id).release(permits(word, 2));
            return "";
        case "loop":
            return loop(handles.get(id), Double.parseDouble(word[2]));
        default:
            throw new IllegalArgumentException(word[0]);
        }
    }

    private static int permits(String[] word, int at) {
        return word.length > at ? Integer.parseInt(word[at]) : 1;
    }

    private static String open(String id, String port, String session, String root) {
        CuratorFramework made = CuratorFrameworkFactory.builder()
                .connectString("127.0.0.1:" + port).sessionTimeoutMs(Integer.parseInt(session))
                .connectionTimeoutMs(10000).retryPolicy(new RetryNTimes(50, 100))
                .namespace(root).build();
        made.start();
        clients.put(id, made);
        return "";
    }

    private static final class Handle {
        private final String kind;
        private InterProcessMutex mutex;
        private InterProcessSemaphoreV2 semaphore;
        private final Deque<Lease> leases = new ArrayDeque<>();

        Handle(CuratorFramework client, String[] word) {
            String path = "/" + word[3];
            kind = word[2];
            if (kind.equals("mutex"))
                mutex = new InterProcessMutex(client, path);
            else if (kind.equals("read"))
                mutex = new InterProcessReadWriteLock(client, path).readLock();
            else if (kind.equals("write"))
                mutex = new InterProcessReadWriteLock(client, path).writeLock();
            else
                semaphore = new InterProcessSemaphoreV2(client, path, Integer.parseInt(word[4]));
        }

        boolean acquire(long wait, int permits) throws Exception {
            if (semaphore == null && wait >= 0)
                return mutex.acquire(wait, MS);
            if (semaphore == null) {
                mutex.acquire();
                return true;
            }
            Collection<Lease> got = wait < 0 ? semaphore.acquire(permits)
                                             : semaphore.acquire(permits, wait, MS);
            if (got == null)
                return false;
            leases.addAll(got);
            return true;
        }

        void release(int permits) throws Exception {
            if (semaphore == null)
                mutex.release();
            else
                for (int i = 0; i < permits; i++)
                    semaphore.returnLease(leases.removeLast());
        }
    }

    /* "PAIRS P50_US P99_US" */
    private static String loop(Handle handle, double seconds) throws Exception {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        long[] took = new long[1 << 16];
        int n = 0;
        while (System.nanoTime() < end && n < took.length) {
            long begin = System.nanoTime();
            handle.acquire(-1, 1);
            handle.release(1);
            took[n++] = (System.nanoTime() - begin) / 1000;
        }
        Arrays.sort(took, 0, n);
        return n + " " + took[n / 2] + " " + took[n * 99 / 100];
    }
}
