/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What every call goes through, and what tests may ask: counting, cost, planned failures, knobs.
 *
 * Exports the functions of ze_soft.h.  Not here: knobs that one part alone reads (it asks
 * soft_knob). */
#include "soft.h"
#include "ze_soft.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

SOFT_EXPORT ze_soft_calls_fn       ze_soft_calls;
SOFT_EXPORT ze_soft_reset_fn       ze_soft_reset;
SOFT_EXPORT ze_soft_fail_at_fn     ze_soft_fail_at;
SOFT_EXPORT ze_soft_fail_if_fn     ze_soft_fail_if;
SOFT_EXPORT ze_soft_has_failed_fn  ze_soft_has_failed;
SOFT_EXPORT ze_soft_failed_call_fn ze_soft_failed_call;
SOFT_EXPORT ze_soft_lose_fn        ze_soft_lose;
SOFT_EXPORT ze_soft_live_fn        ze_soft_live;

static struct {
    /* fixed once read */
    pthread_once_t once;
    uint64_t       call_ns;
    bool           trace, lenient;

    /* atomic */
    _Atomic uint64_t calls;
    _Atomic int64_t  live;

    /* guarded by lock; `armed` may be read without it */
    pthread_mutex_t lock;
    _Atomic bool    armed;
    bool            from;
    _Atomic bool    failed;
    uint64_t        until; /* calls to go, this one counted                            */
    ze_soft_ask_fn *ask;   /* NULL: `until` decides                                    */
    ze_result_t     code;

    _Atomic(const char *) failed_call; /* literal, of the first failure                 */
} knobs = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

/* A number with an optional K, M, G; false when it is none. */
static bool parse_number(const char *text, char **end, uint64_t *value)
{
    unsigned shift = 0;

    errno  = 0;
    *value = strtoull(text, end, 0);
    if (*end == text || errno != 0)
        return false;
    switch (**end) {
    case 'K':
        shift = 10;
        break;
    case 'M':
        shift = 20;
        break;
    case 'G':
        shift = 30;
        break;
    default:
        return true;
    }
    ++*end;
    *value <<= shift;
    return true;
}

static const char *knob_text(const char *name)
{
    char variable[64];

    snprintf(variable, sizeof(variable), "ZE_SOFT_%s", name);
    return getenv(variable);
}

uint64_t soft_knob(const char *name, uint64_t unset)
{
    const char *text = knob_text(name);
    char       *end;
    uint64_t    value;

    if (text == NULL || !parse_number(text, &end, &value) || *end != '\0')
        return unset;
    return value;
}

static void arm(uint64_t nth, ze_soft_ask_fn *ask, ze_result_t code, bool from)
{
    pthread_mutex_lock(&knobs.lock);
    knobs.until  = nth;
    knobs.ask    = ask;
    knobs.code   = code;
    knobs.from   = from;
    knobs.failed = false;
    atomic_store(&knobs.failed_call, "");
    knobs.armed = nth != 0 || ask != NULL;
    pthread_mutex_unlock(&knobs.lock);
}

/* ZE_SOFT_FAIL=n[:code] */
static void arm_from_environment(void)
{
    const char *text = knob_text("FAIL");
    char       *end;
    uint64_t    nth, code = ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;

    if (text == NULL || !parse_number(text, &end, &nth))
        return;
    if (*end == ':' && !parse_number(end + 1, &end, &code))
        return;
    arm(nth, NULL, (ze_result_t)code, false);
}

static void read_knobs(void)
{
    knobs.call_ns = soft_knob("CALL_NS", 0);
    knobs.trace   = soft_knob("TRACE", 0) != 0;
    knobs.lenient = soft_knob("LENIENT", 0) != 0;
    arm_from_environment();
}

bool soft_is_lenient(void)
{
    pthread_once(&knobs.once, read_knobs);
    return knobs.lenient;
}

/* The call's cost is the processor's, as a real driver's is: no sleep. */
static void spend(uint64_t ns)
{
    uint64_t until = soft_now_ns() + ns;

    while (soft_now_ns() < until)
        continue;
}

static const char *plain_name(const char *function)
{
    return function + (strncmp(function, "soft_", 5) == 0 ? 5 : 0);
}

static void enter(const char *function)
{
    pthread_once(&knobs.once, read_knobs);
    if (knobs.trace)
        fprintf(stderr, "ze_soft: %s\n", plain_name(function));
    if (knobs.call_ns != 0)
        spend(knobs.call_ns);
}

static ze_result_t planned_failure(const char *function)
{
    ze_result_t     code = ZE_RESULT_SUCCESS;
    ze_soft_ask_fn *ask;
    bool            fails;

    pthread_mutex_lock(&knobs.lock);
    ask = knobs.ask;
    pthread_mutex_unlock(&knobs.lock);
    fails = ask != NULL && ask(plain_name(function));
    pthread_mutex_lock(&knobs.lock);
    if (ask != NULL ? fails : knobs.armed && --knobs.until == 0) {
        code = knobs.code;
        if (!knobs.failed)
            atomic_store(&knobs.failed_call, plain_name(function));
        knobs.failed = true;
        knobs.until  = 1; /* the next one, too, if `from` */
        knobs.armed  = knobs.from || ask != NULL;
    }
    pthread_mutex_unlock(&knobs.lock);
    return code;
}

/* A device that was lost for one call would go on with its commands: none does so. */
static ze_result_t fail_as_planned(const char *function)
{
    ze_result_t code = planned_failure(function);

    if (code == ZE_RESULT_ERROR_DEVICE_LOST)
        soft_lose(&soft_devices[0]);
    return code;
}

ze_result_t soft_enter(const char *function)
{
    enter(function);
    atomic_fetch_add_explicit(&knobs.calls, 1, memory_order_relaxed);
    if (atomic_load_explicit(&knobs.armed, memory_order_relaxed))
        return fail_as_planned(function);
    return ZE_RESULT_SUCCESS;
}

void soft_enter_free(const char *function)
{
    enter(function);
}

void soft_live(int delta)
{
    atomic_fetch_add_explicit(&knobs.live, delta, memory_order_relaxed);
}

uint64_t soft_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- for tests (ze_soft.h) ------------------------------------------------------- */

uint64_t ze_soft_calls(void)
{
    return atomic_load(&knobs.calls);
}

void ze_soft_reset(void)
{
    atomic_store(&knobs.calls, 0);
}

void ze_soft_fail_at(uint64_t nth, uint32_t code, int from)
{
    pthread_once(&knobs.once, read_knobs); /* which arms, too */
    arm(nth, NULL, (ze_result_t)code, from != 0);
}

void ze_soft_fail_if(ze_soft_ask_fn *ask, uint32_t code)
{
    pthread_once(&knobs.once, read_knobs); /* which arms, too */
    arm(0, ask, (ze_result_t)code, false);
}

int ze_soft_has_failed(void)
{
    return atomic_load(&knobs.failed);
}

const char *ze_soft_failed_call(void)
{
    const char *call = atomic_load(&knobs.failed_call);

    return call != NULL ? call : "";
}

void ze_soft_lose(uint32_t device)
{
    if (device < SOFT_ROOTS)
        soft_lose(&soft_devices[device]);
}

uint64_t ze_soft_live(void)
{
    return (uint64_t)atomic_load(&knobs.live) + soft_exec_live();
}
