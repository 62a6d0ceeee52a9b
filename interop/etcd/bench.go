// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd peer:", err)
		os.Exit(1)
	}
}

// One client with a connection and a session of its own.
func mutex(endpoints, name string) *concurrency.Mutex {
	client, err := connect(endpoints)
	must(err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
	must(err)
	return concurrency.NewMutex(session, name)
}

// bench ENDPOINTS own|same CLIENTS MILLISECONDS: acquire and release in a loop, each client its own
// name or all the same. Prints pairs per second, and the median and 99th percentile of a pair in us.
func bench(args []string) {
	if len(args) != 4 {
		must(fmt.Errorf("ENDPOINTS own|same CLIENTS MILLISECONDS"))
	}
	clients, err := strconv.Atoi(args[2])
	must(err)
	ms, err := strconv.Atoi(args[3])
	must(err)
	all := make([][]int64, clients)
	mutexes := make([]*concurrency.Mutex, clients)
	for i := range mutexes {
		name := "bench/go"
		if args[1] == "own" {
			name += strconv.Itoa(i)
		}
		mutexes[i] = mutex(args[0], name)
		must(mutexes[i].Lock(context.Background()))
		must(mutexes[i].Unlock(context.Background()))
	}
	began := time.Now()
	end := began.Add(time.Duration(ms) * time.Millisecond)
	var group sync.WaitGroup
	for i := range mutexes {
		group.Add(1)
		go func() {
			defer group.Done()
			for time.Now().Before(end) {
				at := time.Now()
				must(mutexes[i].Lock(context.Background()))
				must(mutexes[i].Unlock(context.Background()))
				all[i] = append(all[i], time.Since(at).Microseconds())
			}
		}()
	}
	group.Wait()
	took := time.Since(began).Seconds()
	var times []int64
	for _, t := range all {
		times = append(times, t...)
	}
	sort.Slice(times, func(a, b int) bool { return times[a] < times[b] })
	fmt.Printf("%.0f %d %d\n", float64(len(times))/took, times[len(times)/2],
		times[len(times)*99/100])
}
