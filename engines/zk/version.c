/* SPDX-License-Identifier: Apache-2.0
 *
 * version.c - the server's version. The protocol does not tell the version, but "srvr" does, on a
 * connection of its own. If the log shows it, each connection begins with that question: the
 * request for the session waits for the answer, or for the end of half the time-out.
 */
#include "zk.h"

/* "Zookeeper version: 3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on ..." */
bool zk_version_read(const net_probe *p, char version[ZK_VERSION_MAX])
{
    static const char key[] = "Zookeeper version: ";
    const char *at = strstr(p->heard, key);

    if (!at)
        return false;
    at += sizeof key - 1;
    snprintf(version, ZK_VERSION_MAX, "%.*s", (int)strcspn(at, "-, \r\n"), at);
    pawl_text_clean(version);
    return true;
}

static void answered(net_probe *p)
{
    zk *z = p->arg;
    char version[ZK_VERSION_MAX];

    if (p->answered && zk_version_read(p, version))
        z->env->log(z->env, PAWL_LOG_INFO, "%s: server ZooKeeper %s", p->at->where, version);
    zk_link_attach(z);
}

void zk_version_ask(zk *z)
{
    net_probe *p = &z->link.version;

    *p = (net_probe){.env = z->env, .at = &z->settings.servers.list[z->link.server],
        .tls_context = z->tls_context, .tls = z->settings.tls_settings, .says = "srvr", .arg = z,
        .done = answered};
    net_probe_start(p);
}
