/* SPDX-License-Identifier: Apache-2.0
 *
 * test_resp.h - allocators that can fail, for the files of this test.
 */
#ifndef PAWL_TEST_RESP_H
#define PAWL_TEST_RESP_H

extern int allowed;     /* so many allocations succeed, then none; -1: all */
extern int allocations; /* were tried */

#endif
