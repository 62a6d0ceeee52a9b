// SPDX-License-Identifier: Apache-2.0

// redsync bench SECONDS PORT,PORT,... [fast]: pairs of acquire and release, nobody else there, for
// so long; then one line with the median and the 99th percentile of each, in microseconds. fast:
// it is decided at the majority (WithFailFast), which is not the default.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goclient "github.com/redis/go-redis/v9"
)

func quantiles(values []int64) string {
	sort.Slice(values, func(i, j int) bool { return values[i] < values[j] })
	n := len(values)
	return fmt.Sprintf("%d %d", values[n/2], values[n*99/100])
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func bench(word []string) {
	seconds, err := strconv.ParseFloat(word[0], 64)
	must(err)
	var pools []redis.Pool
	for _, port := range strings.Split(word[1], ",") {
		pools = append(pools, goredis.NewPool(goclient.NewClient(
			&goclient.Options{Addr: "127.0.0.1:" + port})))
	}
	mutex := redsync.New(pools...).NewMutex(fmt.Sprintf("bench:%d", os.Getpid()),
		redsync.WithExpiry(30*time.Second), redsync.WithFailFast(len(word) > 2))
	var acquires, releases []int64
	for warm := 20; warm > 0 || seconds > 0; {
		began := time.Now()
		must(mutex.Lock())
		got := time.Now()
		_, err := mutex.Unlock()
		must(err)
		if warm > 0 {
			warm--
			continue
		}
		acquires = append(acquires, got.Sub(began).Microseconds())
		releases = append(releases, time.Since(got).Microseconds())
		seconds -= time.Since(began).Seconds()
	}
	fmt.Println(quantiles(acquires), quantiles(releases))
}
