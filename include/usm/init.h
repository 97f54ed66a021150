/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Start, end and settings of the library.
 *
 * Nothing has to be called: the first use starts the library.  Settings come,
 * in falling precedence, from a descriptor's field, usm_config_set(), the
 * environment variable USM_<KEY>, a foreign variable (ONEAPI_DEVICE_SELECTOR
 * for the selector), the default.  All functions are thread-safe. */
#ifndef USM_INIT_H
#define USM_INIT_H

#include <usm/types.h>

USM_BEGIN_DECLS

/** Counted.  Starts the library, or takes another reference on it.  Loads no
 * driver: that happens when a device is first needed. */
USM_API usm_status usm_init(void);

/** Counted.  The last one of as many as usm_init() gives the default context
 * back: its queue, pools and memory.  Contexts that callers made go on living.
 * Afterwards functions that need the default context answer USM_E_SHUTDOWN
 * until usm_init() is called again; usm_free() of what went is accepted and does
 * nothing.  Once usm_init() was called it is an error, as a second free is: the
 * address may be another block's by then.
 * A first use before any usm_init() counts as one: it is ended by a call without
 * an usm_init() of its own, so that a plugin's pair of calls ends nothing.
 * Other threads may be allocating and freeing: what they get from then on is NULL
 * and USM_E_SHUTDOWN; their calls that are under way are waited for, new ones not.
 * Called inside of an allocation or a free (by the functions of a pool), it does not
 * wait: the context goes when that is through. */
USM_API void usm_shutdown(void);

/** Sets a setting for the process, over the environment.  `key` is the name
 * without USM_, in any case ("device_selector"); `value` NULL takes an earlier
 * usm_config_set() back.  A setting is read when what it governs is first
 * needed: a selector set after the first device was used changes nothing.
 *   USM_E_SETTING  no such key, or the value does not parse (lists what may be) */
USM_API usm_status usm_config_set(const char *key, const char *value);

/** The value in force and who set it ("default", "usm_config_set",
 * "USM_LOG", ...).  Texts are valid until the setting is next changed.
 *   USM_E_SETTING  no such key */
USM_API usm_status usm_config_get(const char *key, const char **value, const char **origin);

USM_END_DECLS
#endif
