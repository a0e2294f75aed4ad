/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** conf_internal - what the XML reader (conf_xml.c) needs of the table (conf.c) */
#include <stdbool.h>

struct conf;

/** Set @key unless an earlier file made it final. -ENOMEM. */
int conf_set_from_file(struct conf *c, const char *key, const char *value, const char *path,
		       bool is_final);
/** Cut white space in place; returns the first character that is not white. */
char *conf_trim(char *s);
/** Remember where the files were, for conf_reload(). -ENOMEM. */
int conf_note_dir(struct conf *c, const char *dir);
