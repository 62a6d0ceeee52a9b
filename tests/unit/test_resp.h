/* SPDX-License-Identifier: Apache-2.0
 *
 * test_resp.h - what the files of this test share: allocators that can fail.
 */
#ifndef PAWL_TEST_RESP_H
#define PAWL_TEST_RESP_H

extern int allowed;     /* so many allocations succeed, then none; -1: all */
extern int allocations; /* were tried */

#endif
