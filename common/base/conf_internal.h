/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** conf_internal - what the table (conf.c), the syntax of values (conf_value.c), the XML reader
 *  (conf_xml.c) and the look for misspelt keys (conf_typo.c) need of each other */
#include <stdbool.h>
#include <stdint.h>

struct conf;

/** Set @key unless an earlier file made it final. -ENOMEM. */
int conf_set_from_file(struct conf *c, const char *key, const char *value, const char *path,
		       bool is_final);
/** Files are read with the blanks around values. */
bool conf_keeps_blanks(const struct conf *c);
/** Cut white space in place; returns the first character that is not white. */
char *conf_trim(char *s);
/** A time in ms. A number without a unit has that of @dflt, its key's default (may be NULL). */
int conf_parse_time(const char *s, const char *dflt, uint64_t *ret);
/** Remember where the files were, for conf_reload(). -ENOMEM. */
int conf_note_dir(struct conf *c, const char *dir);
/** The key of conf_keys.def that begins with @prefix and is made of @key with the fewest letters
 *  changed, at most @max;
 *  NULL: none. Static. */
const char *conf_nearest(const char *key, const char *prefix, unsigned int max);
/** The key of ours that a name which nobody reads was meant to be, or NULL. Static. */
const char *conf_typo_of(const char *key);
