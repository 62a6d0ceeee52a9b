// SPDX-License-Identifier: Apache-2.0

// worker LIBRARY HOST:PORT [first]: measures a lock library of Go for compare.py. LIBRARY is redsync,
// rueidislock, redislock or etcd. Contenders are goroutines; each has a client of its own, except
// with `shared` and `eights`.
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

// usage: CPU time in microseconds, and how often the process has slept and was woken.
func usage() (int64, int64) {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u.Utime.Sec*1e6 + u.Stime.Sec*1e6 + u.Utime.Usec + u.Stime.Usec, u.Nvcsw
}

// The last contender that had the lock, and when it began to release the lock.
var holder, released atomic.Int64

type part struct {
	rounds, handovers int64
	times, gaps       []int64
}

func (p *part) contend(l lock, number int64, oneName bool, stop *atomic.Bool) {
	for {
		asked := time.Now()
		must(l.acquire())
		held := time.Since(asked)
		last := released.Load()
		changed := holder.Swap(number) != number
		if oneName && changed && last > asked.UnixNano() {
			p.gaps = append(p.gaps, asked.UnixNano()+held.Nanoseconds()-last)
		}
		if oneName {
			released.Store(time.Now().UnixNano())
		}
		must(l.release())
		if oneName {
			p.times = append(p.times, held.Nanoseconds())
		} else {
			p.times = append(p.times, time.Since(asked).Nanoseconds())
		}
		if stop.Load() { // this round ended too late to count for the rate
			return
		}
		p.rounds++
		if changed {
			p.handovers++
		}
	}
}

// shared: one client; eights: a client for eight contenders; else one for each.
func perClient(mode string, contenders int) int {
	switch mode {
	case "shared":
		return contenders
	case "eights":
		return 8
	}
	return 1
}

func run(open func(string) client, address, line string, in *bufio.Scanner) {
	var mode string
	var contenders, ms int
	_, err := fmt.Sscanf(line, "run %s %d %d", &mode, &contenders, &ms)
	must(err)
	each := perClient(mode, contenders)
	var clients []client
	for i := 0; i < contenders; i += each {
		clients = append(clients, open(address))
	}
	oneName := mode == "same" || mode == "eights"
	locks := make([]lock, contenders)
	var all sync.WaitGroup
	for i := range locks {
		number := i
		if oneName {
			number = 0
		}
		locks[i] = clients[i/each].lock(fmt.Sprintf("bench-%d", number))
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
	parts := make([]part, contenders)
	cpu, slept := usage()
	began := time.Now()
	for i := range locks {
		all.Add(1)
		go func() {
			defer all.Done()
			parts[i].contend(locks[i], int64(i), oneName, &stop)
		}()
	}
	time.Sleep(time.Duration(ms) * time.Millisecond)
	stop.Store(true)
	elapsed := time.Since(began)
	all.Wait()
	usedCPU, usedSlept := usage()
	report(parts, usedCPU-cpu, usedSlept-slept, elapsed)
	for _, c := range clients {
		c.close()
	}
}

func sample(text *strings.Builder, times []int64) {
	step := max(1, len(times)/samples)
	for i := 0; i < len(times); i += step {
		fmt.Fprintf(text, " %d", times[i])
	}
}

func report(parts []part, cpu, slept int64, elapsed time.Duration) {
	var times, gaps strings.Builder
	var rounds, handovers, most int64
	fewest := parts[0].rounds
	for _, p := range parts {
		rounds += p.rounds
		handovers += p.handovers
		fewest, most = min(fewest, p.rounds), max(most, p.rounds)
		sample(&times, p.times)
		sample(&gaps, p.gaps)
	}
	fmt.Printf("ran rounds=%d handovers=%d cpu_us=%d elapsed_us=%d fewest=%d most=%d wakeups=%d "+
		"times%s gaps%s\n", rounds, handovers, cpu, elapsed.Microseconds(), fewest, most, slept,
		times.String(), gaps.String())
}

func first(open func(string) client, address string) {
	c := open(address)
	l := c.lock("bench-0")
	must(l.acquire())
	must(l.release())
	c.close()
}

func main() {
	open := libraries[os.Args[1]]
	if len(os.Args) > 3 && os.Args[3] == "first" {
		first(open, os.Args[2])
		return
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		run(open, os.Args[2], in.Text(), in)
	}
}
