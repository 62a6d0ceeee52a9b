// SPDX-License-Identifier: Apache-2.0

// java Worker LIBRARY HOST:PORT: measures a lock library of Java for compare.py. LIBRARY is
// redisson or curator; only the classes of that library need to be there. Contenders are threads; each has a
// client of its own, except with `shared`.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;

public class Worker {
    static final int WARM_UP = 3, SAMPLES = 4000;

    interface Lock {
        void acquire() throws Exception;

        void release() throws Exception;
    }

    interface Client {
        Lock lock(String name) throws Exception;

        void close() throws Exception;
    }

    static class Redisson implements Client {
        final org.redisson.api.RedissonClient client;

        Redisson(String address) {
            var config = new org.redisson.config.Config();
            config.useSingleServer().setAddress("redis://" + address)
                .setConnectionMinimumIdleSize(1).setConnectionPoolSize(64)
                .setSubscriptionConnectionMinimumIdleSize(1);
            config.setThreads(2).setNettyThreads(2);
            client = org.redisson.Redisson.create(config);
        }

        public Lock lock(String name) {
            var lock = client.getLock(name);
            return new Lock() {
                public void acquire() {
                    lock.lock();
                }

                public void release() {
                    lock.unlock();
                }
            };
        }

        public void close() {
            client.shutdown(0, 1, java.util.concurrent.TimeUnit.SECONDS);
        }
    }

    static class Curator implements Client {
        final org.apache.curator.framework.CuratorFramework client;

        Curator(String address) {
            client = org.apache.curator.framework.CuratorFrameworkFactory.newClient(address, 30000,
                30000, new org.apache.curator.retry.ExponentialBackoffRetry(100, 10));
            client.start();
        }

        public Lock lock(String name) {
            var mutex = new org.apache.curator.framework.recipes.locks.InterProcessMutex(client,
                "/bench-curator/" + name);
            return new Lock() {
                public void acquire() throws Exception {
                    mutex.acquire();
                }

                public void release() throws Exception {
                    mutex.release();
                }
            };
        }

        public void close() {
            client.close();
        }
    }

    static Client open(String library, String address) {
        return library.equals("redisson") ? new Redisson(address) : new Curator(address);
    }

    static long cpuMicros() {
        var os = (com.sun.management.OperatingSystemMXBean)
            ManagementFactory.getOperatingSystemMXBean();
        return os.getProcessCpuTime() / 1000;
    }

    static volatile boolean stop;
    // The last contender that had the lock, and how often another one had it before.
    static final AtomicInteger holder = new AtomicInteger(), rounds = new AtomicInteger(),
        handovers = new AtomicInteger();

    static void contend(Lock lock, int number, boolean same, List<Long> times)
            throws Exception {
        for (;;) {
            long began = System.nanoTime();
            lock.acquire();
            long held = System.nanoTime();
            boolean changed = holder.getAndSet(number) != number;
            lock.release();
            times.add((same ? held : System.nanoTime()) - began);
            if (stop) // this round ended too late to count for the rate
                return;
            rounds.incrementAndGet();
            if (changed)
                handovers.incrementAndGet();
        }
    }

    static void run(String library, String address, String line, BufferedReader in)
            throws Exception {
        String[] word = line.split(" ");
        boolean same = word[1].equals("same"), shared = word[1].equals("shared");
        int n = Integer.parseInt(word[2]);
        var clients = new ArrayList<Client>();
        var parts = new ArrayList<List<Long>>();
        var threads = new ArrayList<Thread>();
        var ready = new CountDownLatch(n);
        var go = new CountDownLatch(1);
        stop = false;
        for (int i = 0; i < n; i++) {
            if (i == 0 || !shared)
                clients.add(open(library, address));
            Lock lock = clients.get(shared ? 0 : i).lock("bench-" + (same ? 0 : i));
            var times = new ArrayList<Long>();
            int number = i;
            parts.add(times);
            var thread = new Thread(() -> {
                try {
                    for (int k = 0; k < WARM_UP; k++) {
                        lock.acquire();
                        lock.release();
                    }
                    ready.countDown();
                    go.await();
                    contend(lock, number, same, times);
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                }
            });
            threads.add(thread);
            thread.start();
        }
        ready.await();
        System.out.println("ready");
        in.readLine();
        rounds.set(0);
        handovers.set(0);
        long before = cpuMicros();
        go.countDown();
        Thread.sleep(Long.parseLong(word[3]));
        stop = true;
        for (Thread t : threads)
            t.join();
        report(parts, cpuMicros() - before);
        for (Client c : clients)
            c.close();
    }

    static void report(List<List<Long>> parts, long cpu) {
        var text = new StringBuilder();
        for (var p : parts) {
            int step = Math.max(1, p.size() / SAMPLES);
            for (int i = 0; i < p.size(); i += step)
                text.append(' ').append(p.get(i));
        }
        System.out.println("ran " + rounds.get() + " " + handovers.get() + " " + cpu + text);
    }

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine())
            run(args[0], args[1], line, in);
        System.exit(0);
    }
}
