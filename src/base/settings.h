/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of settings and their values in force.
 *
 * Precedence (a descriptor's field is the caller's affair): usm_config_set,
 * variable USM_<KEY>, foreign variables, default.  Keys are looked up without
 * regard to case.  A value that does not parse warns once, naming the variable
 * and what is allowed, and the next in precedence is used; where that would take
 * more memory or write elsewhere than the user said, whoever asks for devices or
 * contexts is refused instead.  Paths and hooks are read with secure_getenv. */
#ifndef USM_BASE_SETTINGS_H
#define USM_BASE_SETTINGS_H

#include <usm/init.h>

#include <stdatomic.h>

typedef enum usm__setting_type {
    USM__SETTING_TEXT,
    USM__SETTING_BOOL, /* 1/0/true/false/yes/no/on/off                                 */
    USM__SETTING_SIZE  /* bytes with K, M, G, T (powers of 1024)                       */
} usm__setting_type;

#define USM__SETTING_FOREIGN 2

/* What another library's variable says, in our words. */
typedef struct usm__translation {
    char value[256]; /* of our setting                                                  */
    char made[384];  /* which part became what: logged as information                   */
    char lost[512];  /* parts without a counterpart: a warning; "" when there is none   */
    char why[256];   /* what is allowed, when it does not parse                         */
} usm__translation;
/* False when the text does not parse. `t` is all zero before. */
typedef bool usm__setting_translate(const char *variable, const char *text, usm__translation *t);

/* Checks a text; on failure writes into `why` what is allowed. */
typedef bool usm__setting_check(const char *value, char *why, size_t why_size);

typedef struct usm__setting {
    const char         *key;      /* lower case, without usm_                            */
    const char         *variable; /* "USM_" and the key in upper case                   */
    const char         *initial;  /* the default as text; "" = none                      */
    const char         *unit;     /* "", "bytes", "path", ...                            */
    const char         *help;
    usm__setting_check *check; /* or NULL                                              */
    /* Other libraries' variables, read in this order when ours is unset; NULL ends them. */
    const char       *foreign[USM__SETTING_FOREIGN + 1];
    usm__setting_type type;
    bool              secure;     /* not read from the environment of setuid programs    */
    bool              secret;     /* its text is "(set)"; the value is nowhere in dumps or
                                 messages: usm__setting_take_secret                  */
    bool              binding;    /* a value that does not pass stays, and refuses devices:
                                 usm__settings_refusal                                 */
    bool              translated; /* foreign ones have a grammar of their own:
                                 usm__setting_set_translate                          */
} usm__setting;

/* The table, ended by an entry whose key is NULL. */
extern const usm__setting usm__settings[];

/* Rises with every change, from 1: who keeps what he made of a setting compares. */
extern atomic_uint usm__settings_changes;

/* Never NULL for a known key ("" when unset and without default). The text is
 * never freed before the process ends, so readers need no lock. */
const char *usm__setting_text(const char *key);
bool        usm__setting_bool(const char *key);
uint64_t    usm__setting_size(const char *key);
/* Who set the value in force: "default", "usm_config_set", or the variable. */
const char *usm__setting_origin(const char *key);
/* USM_E_SETTING while a variable that binds has a value that does not pass. */
usm_status usm__settings_refusal(void);
/* The value of a secret, 0 behind it, into memory that the caller keeps from dumps; its length, 0:
 * it is not set.  Its variable is overwritten: programs started from now on do not inherit it. */
size_t usm__setting_take_secret(const char *key, char *text, size_t cap);
/* What usm_config_set() and usm_config_get() do once the library has started (the
 * core calls them: checks that only it can make must be in place before). */
usm_status usm__settings_set(const char *key, const char *value);
usm_status usm__settings_get(const char *key, const char **value, const char **origin);
/* Gives `key` a check that only a higher layer can make.  A value that is already
 * in force and does not pass is warned about and dropped. */
void usm__setting_set_check(const char *key, usm__setting_check *check);
/* Gives `key` what reads its foreign variables; before, they are not looked at. Called by the
 * start of the library, for `key` must not have been asked for with them. */
void usm__setting_set_translate(const char *key, usm__setting_translate *translate);
/* Warns about environment variables USM_* that no setting has (once). */
void usm__settings_warn_unknown(void);
/* For tests and fuzzers: as when the process began, and all texts are freed. No
 * other thread, and nobody who holds a text. */
void usm__settings_forget(void);

#endif
