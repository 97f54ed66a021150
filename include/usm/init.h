/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Initialisation, shutdown and settings of the library.
 *
 * No call is required: the first use initialises the library.  The value of a
 * setting comes, in falling precedence, from the field of a descriptor, from
 * usm_config_set(), from the environment variable USM_<KEY>, from a variable of
 * another project (ONEAPI_DEVICE_SELECTOR for the selector), or is the default.
 * All functions are thread-safe. */
#ifndef USM_INIT_H
#define USM_INIT_H

#include <usm/types.h>

USM_BEGIN_DECLS

/** Initialises the library, or takes another reference to it.  It loads no
 * driver: the library does that when it first needs a device. */
USM_API usm_status usm_init(void);

/** Drops one reference.  The call that drops the last one destroys the default
 * context with its queue, pools and memory; contexts that callers created stay
 * alive.  From then on functions that need the default context return
 * USM_E_SHUTDOWN, until usm_init() is called again.
 *
 * A first use before any usm_init() counts as a reference.  Only a call of
 * usm_shutdown() that matches no usm_init() drops that reference, so a plugin
 * that calls usm_init() and usm_shutdown() in pairs never shuts the program's
 * library down.
 *
 * usm_free() accepts a block of the destroyed context and does nothing.  After
 * the next usm_init() such a free is an error, like a double free: by then the
 * address may be that of another block.
 *
 * Other threads may be allocating and freeing meanwhile.  The function waits
 * for their calls that are in progress, never for new ones; new allocations
 * return NULL with USM_E_SHUTDOWN.  Called from within an allocation or a free
 * (by a function of a pool) it does not wait: the context is destroyed when
 * that call returns. */
USM_API void usm_shutdown(void);

/** Sets a setting for the whole process; the value takes precedence over the
 * environment.  `key` is the name without USM_, in upper or lower case
 * ("device_selector").  A `value` of NULL undoes an earlier usm_config_set().
 * The library reads a setting when it first needs what the setting controls: a
 * selector that is set after the first device was used has no effect.
 *   USM_E_SETTING  there is no such key, or the value does not parse; the error
 *                  message lists the allowed values */
USM_API usm_status usm_config_set(const char *key, const char *value);

/** Returns the current value and its origin: "default", "usm_config_set",
 * "USM_LOG" and so on.  The texts belong to the library and are valid until the
 * setting is next changed.
 *   USM_E_SETTING  there is no such key */
USM_API usm_status usm_config_get(const char *key, const char **value, const char **origin);

USM_END_DECLS
#endif
