/* SPDX-License-Identifier: Apache-2.0
 *
 * template.h - the names of locks without the ids in them, for the labels of metrics.
 */
#ifndef PAWL_TEMPLATE_H
#define PAWL_TEMPLATE_H

#include <stddef.h>

#define PAWL_TEMPLATE_SIZE 256
#define PAWL_TEMPLATE_OTHER "other" /* for all names beyond the largest number of templates */

/* Put the template of `name` into `to`: each id becomes one '*'. Ids are UUIDs, runs of digits,
 * runs of 8 or more hexadecimal digits and runs of 16 or more letters and digits; each run has at
 * least one decimal digit. Bytes that are not UTF-8 and control characters become '?'. A name
 * longer than 255 bytes is cut. */
void pawl__template(char to[PAWL_TEMPLATE_SIZE], const char *name);

/* Write `text` as the value of a label, without the quotes around it: \ " and newline escaped.
 * Returns the length; `to` needs twice the length of `text`, and one. */
size_t pawl__label_escape(char *to, const char *text);

#endif
