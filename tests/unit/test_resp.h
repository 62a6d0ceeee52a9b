/* SPDX-License-Identifier: Apache-2.0
 *
 * test_resp.h - allocators that can fail, for the files of this test.
 */
#ifndef PAWL_TEST_RESP_H
#define PAWL_TEST_RESP_H

extern int allowed;     /* how many allocations succeed before all fail; -1: all succeed */
extern int allocations; /* the number of allocations tried */

#endif
