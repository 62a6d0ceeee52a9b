/* SPDX-License-Identifier: Apache-2.0
 *
 * tls_entry.c - the exported symbol of the module tls.so (tls_module.c).
 */
#include "net.h"

__attribute__((visibility("default"))) extern const net_tls_module pawl_tls;

const net_tls_module pawl_tls = {
    .context = net_tls_context,
    .context_free = net_tls_context_free,
    .open = net_tls_new,
    .free = net_tls_free,
    .handshake = net_tls_handshake,
    .read = net_tls_read,
    .write = net_tls_write,
    .wants_write = net_tls_wants_write,
    .library = net_tls_library,
};
