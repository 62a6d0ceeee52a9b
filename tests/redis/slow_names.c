/* SPDX-License-Identifier: Apache-2.0
 *
 * slow_names.c - a library for LD_PRELOAD: resolving names that end in ".slow.test" takes very long
 * and then fails, as with a resolver whose servers don't answer.
 */
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

enum { SECONDS = 30 };

typedef int resolve_fn(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    static const char slow[] = ".slow.test";
    size_t length = node ? strlen(node) : 0;
    resolve_fn *real = NULL;

    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (length > strlen(slow) && !strcmp(node + length - strlen(slow), slow) &&
        !(hints && (hints->ai_flags & AI_NUMERICHOST))) {
        sleep(SECONDS);
        return EAI_AGAIN;
    }
    return real ? real(node, service, hints, ret) : EAI_SYSTEM;
}
