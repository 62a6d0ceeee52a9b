/* SPDX-License-Identifier: Apache-2.0
 *
 * probe.h - checks whether a server answers. For EXAMINE, which checks all servers of a URL and not
 * only the connected one.
 */
#ifndef PAWL_NET_PROBE_H
#define PAWL_NET_PROBE_H

#include "net.h"

/* One connection: open it, send a few bytes if there are any, and read the whole answer. The caller
 * sets all fields above the line. `done` is called once, perhaps inside net_probe_start, unless
 * net_probe_end comes first; outside of net_probe_start, `done` may free the probe. */
typedef struct net_probe {
    pawl_env *env;
    const net_address *at;
    void *tls_context;        /* NULL: plain */
    net_tls_settings tls;     /* net_probe_start sets the host */
    const char *says;         /* the bytes to send; NULL: connecting is enough */
    void *arg;
    void (*done)(struct net_probe *p);
    /* ---- */
    bool answered;
    char heard[1024];         /* the beginning of the answer */
    size_t length;
    char words[NET_WORDS];    /* why there was no answer */
    net_stream stream;
    pawl_timer timer;
} net_probe;

void net_probe_start(net_probe *p);
/* May be called at any time, also twice. */
void net_probe_end(net_probe *p);

#endif
