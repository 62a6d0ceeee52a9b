/* SPDX-License-Identifier: Apache-2.0
 *
 * Redisson behind one line in, one line out (interop/README.md has the protocol).
 *
 * Redisson's owner is a thread of a client, so every owner named in an ID gets a thread of its own
 * that carries out its commands in order; a blocked acquire blocks only that owner.
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public final class Driver {
    private static final TimeUnit MS = TimeUnit.MILLISECONDS;
    private static final Map<String, RedissonClient> clients = new ConcurrentHashMap<>();
    private static final Map<String, Worker> workers = new ConcurrentHashMap<>();
    private static final Map<String, Handle> handles = new ConcurrentHashMap<>();

    private static boolean cluster;

    public static void main(String[] args) throws Exception {
        cluster = args.length > 0 && args[0].equals("cluster");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] word = line.trim().split(" +");
            if (word[0].equals("die"))
                Runtime.getRuntime().halt(137);
            if (word[0].equals("open"))
                new Thread(() -> answer(word[1], () -> open(word))).start();
            else if (word[0].equals("close"))
                new Thread(() -> answer(word[1], () -> close(word[1]))).start();
            else
                worker(word[1]).queue.add(() -> answer(word[1], () -> serve(word)));
        }
        Runtime.getRuntime().halt(0);
    }

    /* ---- Lines out --------------------------------------------------------------------------- */

    private interface Command {
        String run() throws Exception;
    }

    private static final String BUSY = "busy";

    private static void answer(String id, Command command) {
        String status = "ok";
        String words;
        try {
            words = command.run();
            if (words == BUSY) {
                status = BUSY;
                words = "";
            }
        } catch (Throwable e) {
            status = "error";
            words = e.getClass().getSimpleName() + ": " + e.getMessage();
        }
        say(id + " " + status + " " + System.nanoTime() / 1000 + " " + words);
    }

    private static synchronized void say(String line) {
        System.out.println(line.replace('\n', ' ').trim());
        System.out.flush();
    }

    /* ---- Clients, owners, handles ------------------------------------------------------------ */

    private static String open(String[] word) {
        Config config = new Config();
        config.setThreads(4).setNettyThreads(4);
        if (word.length > 3)
            config.setLockWatchdogTimeout(Long.parseLong(word[3]));
        if (cluster)
            config.useClusterServers().addNodeAddress("redis://127.0.0.1:" + word[2])
                  .setMasterConnectionMinimumIdleSize(1).setMasterConnectionPoolSize(8)
                  .setSubscriptionConnectionMinimumIdleSize(1);
        else
            config.useSingleServer().setAddress("redis://127.0.0.1:" + word[2])
                  .setConnectionMinimumIdleSize(1).setConnectionPoolSize(8)
                  .setSubscriptionConnectionMinimumIdleSize(1);
        RedissonClient client = Redisson.create(config);
        clients.put(word[1], client);
        return client.getId();
    }

    /* Ends the client as a program that forgot to unlock would: what it holds stays. */
    private static String close(String name) {
        clients.remove(name).shutdown();
        handles.keySet().removeIf(id -> id.startsWith(name + "."));
        return "";
    }

    private static final class Worker extends Thread {
        final LinkedBlockingQueue<Runnable> queue = new LinkedBlockingQueue<>();

        @Override
        public void run() {
            try {
                while (true)
                    queue.take().run();
            } catch (InterruptedException e) {
                /* Nobody interrupts it. */
            }
        }
    }

    /* CLIENT.OWNER.HANDLE: what comes before the last dot of three parts is the owner. */
    private static Worker worker(String id) {
        String[] part = id.split("\\.");
        String owner = part.length > 1 ? part[0] + "." + part[1] : part[0];
        return workers.computeIfAbsent(owner, o -> {
            Worker made = new Worker();
            made.setDaemon(true);
            made.start();
            return made;
        });
    }

    private static final class Handle {
        RLock lock;
        RSemaphore semaphore;
        RPermitExpirableSemaphore permits;
        RCountDownLatch latch;
        long lease;
        final List<String> held = new ArrayList<>(); /* permit ids, the newest last */
    }

    private static String make(String[] word) {
        RedissonClient client = clients.get(word[1].split("\\.")[0]);
        if (client == null)
            throw new IllegalStateException("no client is open for " + word[1]);
        String name = word[3];
        Handle h = new Handle();
        boolean renew = word.length > 5 && word[5].equals("renew");
        h.lease = word.length > 4 && !renew ? Long.parseLong(word[4]) : 0;
        switch (word[2]) {
        case "mutex": h.lock = client.getLock(name); break;
        case "fenced": h.lock = client.getFencedLock(name); break;
        case "fair": h.lock = client.getFairLock(name); break;
        case "spin": h.lock = client.getSpinLock(name); break;
        case "read": h.lock = client.getReadWriteLock(name).readLock(); break;
        case "write": h.lock = client.getReadWriteLock(name).writeLock(); break;
        case "semaphore": h.semaphore = client.getSemaphore(name); break;
        case "permits": h.permits = client.getPermitExpirableSemaphore(name); break;
        case "latch": h.latch = client.getCountDownLatch(name); break;
        default: throw new IllegalArgumentException("no such kind: " + word[2]);
        }
        handles.put(word[1], h);
        return "";
    }

    /* ---- Commands ---------------------------------------------------------------------------- */

    private static String serve(String[] word) throws Exception {
        if (word[0].equals("lock"))
            return make(word);
        if (word[0].equals("owner"))
            return clients.get(word[1].split("\\.")[0]).getId() + ":"
                   + Thread.currentThread().getId();
        Handle h = handles.get(word[1]);
        if (h == null)
            throw new IllegalStateException("no such handle");
        if (h.lock != null)
            return lock(h, word);
        if (h.semaphore != null)
            return semaphore(h.semaphore, word);
        if (h.permits != null)
            return permits(h, word);
        return latch(h.latch, word);
    }

    private static long number(String[] word, int i, long otherwise) {
        return word.length > i ? Long.parseLong(word[i]) : otherwise;
    }

    private static IllegalArgumentException unknown(String[] word) {
        return new IllegalArgumentException("this kind does not know " + word[0]);
    }

    private static String lock(Handle h, String[] word) throws Exception {
        RLock lock = h.lock;
        switch (word[0]) {
        case "try": return acquire(h, 0) ? "" : BUSY;
        case "acquire": return acquire(h, number(word, 2, -1)) ? "" : BUSY;
        case "grab": return grab(h, number(word, 2, -1));
        case "release": lock.unlock(); return "";
        case "force": return lock.forceUnlock() ? "" : BUSY;
        case "count": return "" + lock.getHoldCount();
        case "held": return lock.isHeldByCurrentThread() ? "1" : "0";
        case "locked": return lock.isLocked() ? "1" : "0";
        case "ttl": return "" + lock.remainTimeToLive();
        case "token": return "" + ((RFencedLock) lock).getToken();
        default: throw unknown(word);
        }
    }

    private static boolean acquire(Handle h, long wait) throws InterruptedException {
        if (wait == 0 && h.lease == 0)
            return h.lock.tryLock();
        if (wait >= 0)
            return h.lock.tryLock(wait, h.lease > 0 ? h.lease : -1, MS);
        if (h.lease > 0)
            h.lock.lock(h.lease, MS);
        else
            h.lock.lock();
        return true;
    }

    /* Acquire a fenced lock by the call that answers with the token. */
    private static String grab(Handle h, long wait) {
        RFencedLock lock = (RFencedLock) h.lock;
        if (wait < 0)
            return "" + lock.lockAndGetToken();
        Long token = lock.tryLockAndGetToken(wait, h.lease > 0 ? h.lease : -1, MS);
        return token == null ? BUSY : "" + token;
    }

    private static String semaphore(RSemaphore s, String[] word) throws Exception {
        int n = (int) number(word, word[0].equals("acquire") ? 3 : 2, 1);
        switch (word[0]) {
        case "set": return s.trySetPermits(n) ? "" : BUSY;
        case "add": s.addPermits(n); return "";
        case "drain": return "" + s.drainPermits();
        case "available": return "" + s.availablePermits();
        case "release": s.release(n); return "";
        case "try": return s.tryAcquire(n) ? "" : BUSY;
        case "acquire":
            long wait = number(word, 2, -1);
            if (wait >= 0)
                return s.tryAcquire(n, Duration.ofMillis(wait)) ? "" : BUSY;
            s.acquire(n);
            return "";
        default: throw unknown(word);
        }
    }

    private static String permits(Handle h, String[] word) throws Exception {
        RPermitExpirableSemaphore s = h.permits;
        switch (word[0]) {
        case "set": return s.trySetPermits((int) number(word, 2, 1)) ? "" : BUSY;
        case "reset": s.setPermits((int) number(word, 2, 1)); return "";
        case "add": s.addPermits((int) number(word, 2, 1)); return "";
        case "available": return "" + s.availablePermits();
        case "taken": return "" + s.acquiredPermits();
        case "capacity": return "" + s.getPermits();
        case "try": return take(h, 0, (int) number(word, 2, 1));
        case "acquire": return take(h, number(word, 2, -1), (int) number(word, 3, 1));
        case "release": return give(h, (int) number(word, 2, 1));
        case "extend":
            return s.updateLeaseTime(h.held.get(h.held.size() - 1), number(word, 2, 0), MS) ? ""
                                                                                          : BUSY;
        default: throw unknown(word);
        }
    }

    private static String take(Handle h, long wait, int n) throws Exception {
        long lease = h.lease > 0 ? h.lease : -1;
        List<String> got;
        if (n == 1) {
            String id = wait >= 0 ? h.permits.tryAcquire(wait, lease, MS)
                      : lease > 0 ? h.permits.acquire(lease, MS) : h.permits.acquire();
            got = id == null ? List.of() : List.of(id);
        } else {
            got = wait >= 0 ? h.permits.tryAcquire(n, wait, lease, MS)
                : lease > 0 ? h.permits.acquire(n, lease, MS) : h.permits.acquire(n);
        }
        if (got == null || got.isEmpty())
            return BUSY;
        h.held.addAll(got);
        return String.join(",", got);
    }

    private static String give(Handle h, int n) {
        List<String> newest = h.held.subList(h.held.size() - n, h.held.size());
        List<String> ids = new ArrayList<>(newest);
        newest.clear();
        if (n == 1)
            h.permits.release(ids.get(0));
        else
            h.permits.release(ids);
        return "";
    }

    private static String latch(RCountDownLatch latch, String[] word) throws Exception {
        switch (word[0]) {
        case "set": return latch.trySetCount(number(word, 2, 1)) ? "" : BUSY;
        case "down": latch.countDown(); return "";
        case "count": return "" + latch.getCount();
        case "delete": return latch.delete() ? "" : BUSY;
        case "await":
            long wait = number(word, 2, -1);
            if (wait >= 0)
                return latch.await(wait, MS) ? "" : BUSY;
            latch.await();
            return "";
        default: throw unknown(word);
        }
    }
}
