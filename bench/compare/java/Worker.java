// SPDX-License-Identifier: Apache-2.0

// java Worker LIBRARY HOST:PORT [first]: measures a lock library of Java for compare.py. LIBRARY is
// redisson or curator; only the classes of that library need to be there. Contenders are threads;
// each has a client of its own, except with `shared` and `eights`. `permits` is a semaphore of ten;
// with `reading` each contender writes once in 20 rounds.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;

public class Worker {
    static final int WARM_UP = 3, SAMPLES = 4000, PERMITS = 10, WRITE_EVERY = 20;

    interface Lock {
        void acquire() throws Exception;

        void release() throws Exception;
    }

    enum Kind { EXCLUSIVE, READER, WRITER, PERMIT }

    interface Client {
        Lock lock(String name, Kind kind) throws Exception;

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

        public Lock lock(String name, Kind kind) {
            if (kind == Kind.PERMIT) {
                var permits = client.getSemaphore(name);
                permits.trySetPermits(PERMITS);
                return Worker.lock(permits::acquire, permits::release);
            }
            var both = client.getReadWriteLock(name);
            var lock = kind == Kind.READER ? both.readLock() : kind == Kind.WRITER ?
                both.writeLock() : client.getLock(name);
            return Worker.lock(lock::lock, lock::unlock);
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

        public Lock lock(String name, Kind kind) {
            String path = "/bench-curator/" + name;
            if (kind == Kind.PERMIT) {
                var permits = new org.apache.curator.framework.recipes.locks
                    .InterProcessSemaphoreV2(client, path, PERMITS);
                var held = new org.apache.curator.framework.recipes.locks.Lease[1];
                return Worker.lock(() -> held[0] = permits.acquire(),
                    () -> permits.returnLease(held[0]));
            }
            var both = new org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock(
                client, path);
            var mutex = kind == Kind.READER ? both.readLock() : kind == Kind.WRITER ?
                both.writeLock() : new org.apache.curator.framework.recipes.locks
                    .InterProcessMutex(client, path);
            return Worker.lock(mutex::acquire, mutex::release);
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

    interface Step {
        void run() throws Exception;
    }

    static Lock lock(Step acquire, Step release) {
        return new Lock() {
            public void acquire() throws Exception {
                acquire.run();
            }

            public void release() throws Exception {
                release.run();
            }
        };
    }

    static volatile boolean stop;
    // The last contender that had the lock, and when it began to release the lock.
    static final AtomicInteger holder = new AtomicInteger();
    static volatile long released;

    static class Part {
        long rounds, handovers;
        final List<Long> times = new ArrayList<>(), gaps = new ArrayList<>();

        // writer: null unless `reading`.
        void contend(Lock usual, Lock writer, int number, boolean oneName) throws Exception {
            for (int i = number;; i++) {
                Lock lock = writer != null && i % WRITE_EVERY == 0 ? writer : usual;
                long asked = System.nanoTime();
                lock.acquire();
                long held = System.nanoTime(), last = released;
                boolean changed = holder.getAndSet(number) != number;
                if (oneName && changed && last > asked)
                    gaps.add(held - last);
                if (oneName)
                    released = System.nanoTime();
                lock.release();
                times.add((oneName ? held : System.nanoTime()) - asked);
                if (stop) // this round ended too late to count for the rate
                    return;
                rounds++;
                if (changed)
                    handovers++;
            }
        }
    }

    static void run(String library, String address, String line, BufferedReader in)
            throws Exception {
        String[] word = line.split(" ");
        String mode = word[1];
        int n = Integer.parseInt(word[2]);
        int each = mode.equals("shared") ? n : mode.equals("eights") ? 8 : 1;
        boolean oneName = !mode.equals("own") && !mode.equals("shared");
        boolean reading = mode.equals("reading");
        Kind kind = mode.equals("permits") ? Kind.PERMIT : reading ? Kind.READER : Kind.EXCLUSIVE;
        var clients = new ArrayList<Client>();
        var parts = new ArrayList<Part>();
        var threads = new ArrayList<Thread>();
        var ready = new CountDownLatch(n);
        var go = new CountDownLatch(1);
        stop = false;
        for (int i = 0; i < n; i++) {
            if (i % each == 0)
                clients.add(open(library, address));
            Client client = clients.get(i / each);
            String name = "bench-" + mode + "-" + (oneName ? 0 : i);
            Lock lock = client.lock(name, kind);
            Lock writer = reading ? client.lock(name, Kind.WRITER) : null;
            var part = new Part();
            int number = i;
            parts.add(part);
            var thread = new Thread(() -> {
                try {
                    for (int k = 0; k < WARM_UP; k++) {
                        lock.acquire();
                        lock.release();
                    }
                    ready.countDown();
                    go.await();
                    part.contend(lock, writer, number, oneName);
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
        long before = cpuMicros(), began = System.nanoTime();
        go.countDown();
        Thread.sleep(Long.parseLong(word[3]));
        stop = true;
        long elapsed = System.nanoTime() - began;
        for (Thread t : threads)
            t.join();
        report(parts, cpuMicros() - before, elapsed / 1000);
        for (Client c : clients)
            c.close();
    }

    static void sample(StringBuilder text, List<Long> times) {
        int step = Math.max(1, times.size() / SAMPLES);
        for (int i = 0; i < times.size(); i += step)
            text.append(' ').append(times.get(i));
    }

    static void report(List<Part> parts, long cpu, long elapsed) {
        var times = new StringBuilder();
        var gaps = new StringBuilder();
        long rounds = 0, handovers = 0, fewest = Long.MAX_VALUE, most = 0;
        for (var p : parts) {
            rounds += p.rounds;
            handovers += p.handovers;
            fewest = Math.min(fewest, p.rounds);
            most = Math.max(most, p.rounds);
            sample(times, p.times);
            sample(gaps, p.gaps);
        }
        System.out.println("ran rounds=" + rounds + " handovers=" + handovers + " cpu_us=" + cpu
            + " elapsed_us=" + elapsed + " fewest=" + fewest + " most=" + most + " times" + times
            + " gaps" + gaps);
    }

    static void first(Client client) throws Exception {
        Lock lock = client.lock("bench-first", Kind.EXCLUSIVE);
        lock.acquire();
        lock.release();
        client.close();
    }

    public static void main(String[] args) throws Exception {
        if (args.length > 2 && args[2].equals("first")) {
            first(open(args[0], args[1]));
            System.exit(0);
        }
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine())
            run(args[0], args[1], line, in);
        System.exit(0);
    }
}
