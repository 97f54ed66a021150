/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of settings and their current values.
 *
 * Precedence: usm_config_set, variable USM_<KEY>, foreign variables, default.  (Fields of
 * descriptors are handled by the caller.)  Keys are looked up without regard to case.  A value that
 * does not parse causes one warning, with the variable and the allowed values, and the next in
 * precedence is used.  Where that would use more memory or write elsewhere than the user wanted,
 * listing devices and creating contexts fail instead.  Paths and hooks are read with
 * secure_getenv. */
#ifndef USM_BASE_SETTINGS_H
#define USM_BASE_SETTINGS_H

#include <usm/init.h>

#include <stdatomic.h>

typedef enum usm__setting_type {
    USM__SETTING_TEXT,
    USM__SETTING_BOOL, /* 1/0/true/false/yes/no/on/off                                 */
    USM__SETTING_SIZE, /* bytes with K, M, G, T (powers of 1024)                       */
    USM__SETTING_WORD  /* a word of `unit`, "a|b|c"; unset if there is no default      */
} usm__setting_type;

#define USM__SETTING_FOREIGN 2

/* The variable of another library, translated to a setting. */
typedef struct usm__translation {
    char value[256]; /* the value of our setting                                     */
    char made[384];  /* explains the translation: logged as information              */
    char lost[512];  /* parts without a counterpart: a warning; "" if there are none */
    char why[256];   /* what is allowed, if the text does not parse                  */
} usm__translation;
/* False if the text does not parse.  `t` is all zero at entry. */
typedef bool usm__setting_translate(const char *variable, const char *text, usm__translation *t);

/* Checks a text; on failure writes what is allowed to `why`. */
typedef bool usm__setting_check(const char *value, char *why, size_t why_size);

typedef struct usm__setting {
    const char         *key;      /* lower case, without usm_                            */
    const char         *variable; /* "USM_" and the key in upper case                   */
    const char         *initial;  /* the default as text; "" = none                      */
    const char         *unit;     /* "", "bytes", "path", "a|b", ...                     */
    const char         *help;
    usm__setting_check *check; /* or NULL                                              */
    /* Variables of other libraries, read in this order if ours is unset; ended by NULL. */
    const char       *foreign[USM__SETTING_FOREIGN + 1];
    usm__setting_type type;
    bool              secure;     /* not read from the environment of setuid programs    */
    bool              secret;     /* its text is "(set)"; the value is in no dump or message:
                                     usm__setting_take_secret */
    bool              binding;    /* an invalid value is not replaced, and no device is listed:
                                     usm__settings_refusal */
    bool              translated; /* the foreign variables have a grammar of their own:
                                     usm__setting_set_translate */
} usm__setting;

/* The table, ended by an entry whose key is NULL. */
extern const usm__setting usm__settings[];

/* Incremented with every change, from 1: code that caches a result of a setting compares it. */
extern atomic_uint usm__settings_changes;

/* Never NULL for a known key ("" if it is unset and has no default).  The text is never freed
 * before the process ends, so readers need no lock. */
const char *usm__setting_text(const char *key);
bool        usm__setting_bool(const char *key);
uint64_t    usm__setting_size(const char *key);
/* The source of the current value: "default", "usm_config_set", or the variable. */
const char *usm__setting_origin(const char *key);
/* USM_E_SETTING while a binding variable has an invalid value. */
usm_status usm__settings_refusal(void);
/* Writes the value of a secret, followed by a 0, to memory that the caller keeps out of dumps.
 * Returns its length, 0: it is not set.  Overwrites its variable: programs started from now on do
 * not inherit it. */
size_t usm__setting_take_secret(const char *key, char *text, size_t cap);
/* The work of usm_config_set() and usm_config_get().  The core calls these after the start of the
 * library, because the checks that only the core can make must be installed before. */
usm_status usm__settings_set(const char *key, const char *value);
usm_status usm__settings_get(const char *key, const char **value, const char **origin);
/* Gives `key` a check that only a higher layer can make.  If the current value does not pass it, it
 * is dropped with a warning. */
void usm__setting_set_check(const char *key, usm__setting_check *check);
/* Gives `key` the function that translates its foreign variables, which are not read before.
 * Called at the start of the library, because the key must not have been read before. */
void usm__setting_set_translate(const char *key, usm__setting_translate *translate);
/* Warns once about environment variables USM_* that are not settings. */
void usm__settings_warn_unknown(void);
/* For tests and fuzzers: restores the state at the start of the process, and frees all texts.  No
 * other thread may run, and the caller may hold no text. */
void usm__settings_forget(void);

#endif
