// SPDX-License-Identifier: Apache-2.0

// worker LIBRARY HOST:PORT: measures a lock library of Go for compare.py. LIBRARY is redsync,
// rueidislock, redislock or etcd. Contenders are goroutines; each has a client of its own, except
// with `shared`.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	warmUp  = 3
	samples = 4000
)

// A client makes locks; a lock is two functions.
type lock struct{ acquire, release func() error }
type client struct {
	lock  func(name string) lock
	close func()
}

var libraries = map[string]func(address string) client{
	"redsync":     openRedsync,
	"rueidislock": openRueidis,
	"redislock":   openRedislock,
	"etcd":        openEtcd,
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func cpuMicros() int64 {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u.Utime.Sec*1e6 + u.Stime.Sec*1e6 + u.Utime.Usec + u.Stime.Usec
}

// The last contender that had the lock, and how often another one had it before.
var holder, rounds, handovers atomic.Int64

func contend(l lock, number int64, same bool, stop *atomic.Bool) (times []int64) {
	for {
		began := time.Now()
		must(l.acquire())
		held := time.Since(began)
		changed := holder.Swap(number) != number
		must(l.release())
		if same {
			times = append(times, held.Nanoseconds())
		} else {
			times = append(times, time.Since(began).Nanoseconds())
		}
		if stop.Load() { // this round ended too late to count for the rate
			return
		}
		rounds.Add(1)
		if changed {
			handovers.Add(1)
		}
	}
}

func run(open func(string) client, address, line string, in *bufio.Scanner) {
	var mode string
	var contenders, ms int
	_, err := fmt.Sscanf(line, "run %s %d %d", &mode, &contenders, &ms)
	must(err)
	var clients []client
	for i := 0; i < contenders && (i == 0 || mode != "shared"); i++ {
		clients = append(clients, open(address))
	}
	locks := make([]lock, contenders)
	var all sync.WaitGroup
	for i := range locks {
		number := i
		if mode == "same" {
			number = 0
		}
		locks[i] = clients[i%len(clients)].lock(fmt.Sprintf("bench-%d", number))
		all.Add(1)
		go func() {
			defer all.Done()
			for range warmUp {
				must(locks[i].acquire())
				must(locks[i].release())
			}
		}()
	}
	all.Wait()
	fmt.Println("ready")
	in.Scan()
	var stop atomic.Bool
	parts := make([][]int64, contenders)
	rounds.Store(0)
	handovers.Store(0)
	before := cpuMicros()
	for i := range locks {
		all.Add(1)
		go func() {
			defer all.Done()
			parts[i] = contend(locks[i], int64(i), mode == "same", &stop)
		}()
	}
	time.Sleep(time.Duration(ms) * time.Millisecond)
	stop.Store(true)
	all.Wait()
	report(parts, cpuMicros()-before)
	for _, c := range clients {
		c.close()
	}
}

func report(parts [][]int64, cpu int64) {
	var text strings.Builder
	for _, p := range parts {
		step := max(1, len(p)/samples)
		for i := 0; i < len(p); i += step {
			fmt.Fprintf(&text, " %d", p[i])
		}
	}
	fmt.Printf("ran %d %d %d%s\n", rounds.Load(), handovers.Load(), cpu, text.String())
}

func main() {
	open := libraries[os.Args[1]]
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		run(open, os.Args[2], in.Text(), in)
	}
}
