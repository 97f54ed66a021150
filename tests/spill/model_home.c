/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See model.h.  Here: homes that are functions of the test, commits, and what lies at home when the
 * buffer has gone: what was committed last, and nothing newer. */
#include "model.h"
#include "model_inside.h"

#include <stdlib.h>
#include <string.h>

static usm_status home_read(void *home_, uint64_t offset, void *out, size_t size)
{
    const lair *home = home_;

    if (offset > home->size || size > home->size - offset)
        return usm_home_fail(USM_E_CORRUPT, "[%llu, +%zu) of a home of %zu",
                             (unsigned long long)offset, size, home->size);
    memcpy(out, home->bytes + offset, size);
    if (home->fails != NULL && home->fails(false)) {
        memset(out, 0xee, size);
        return usm_home_fail(USM_E_IO, "the home was told to fail");
    }
    return USM_OK;
}

static usm_status home_write(void *home_, uint64_t offset, const void *in, size_t size)
{
    lair *home = home_;

    if (home->fails != NULL && home->fails(true))
        return usm_home_fail(USM_E_IO, "the home was told to fail");
    memcpy(home->bytes + offset, in, size);
    return USM_OK;
}

static usm_status home_flush(void *home_)
{
    const lair *home = home_;

    return home->fails != NULL && home->fails(true)
               ? usm_home_fail(USM_E_IO, "the home was told to fail to flush")
               : USM_OK;
}

static void home_close(void *home_)
{
    lair *home = home_;

    atomic_store(&home->is_closed, true);
}

const usm_home_ops model_home_ops = {sizeof(usm_home_ops), home_read, home_write, home_flush,
                                     home_close};

lair *model_home_create(model *m, data *d)
{
    lair         *home = calloc(1, sizeof(lair));
    unsigned char seed = (unsigned char)model_random(m);

    if (home == NULL || (home->bytes = malloc(d->size)) == NULL ||
        (home->committed = malloc(d->size)) == NULL || (home->known = malloc(d->size)) == NULL)
        abort();
    home->size  = d->size;
    home->fails = m->p.home_fails;
    for (size_t i = 0; i < d->size; i++)
        home->bytes[i] = d->bytes[i] = (unsigned char)(seed + i * 13 + (i >> 8));
    memcpy(home->committed, home->bytes, d->size);
    memset(home->known, 0xff, d->size);
    memset(d->known, 0xff, d->size);
    return home;
}

void model_home_destroy(lair *home)
{
    free(home->bytes);
    free(home->committed);
    free(home->known);
    free(home);
}

static void check_content(model *m, const lair *home, const char *when)
{
    for (size_t i = 0; !home->is_torn && i < home->size; i++)
        if ((home->bytes[i] ^ home->committed[i]) & home->known[i])
            model_wrong(m, "%s, byte %zu at home is 0x%02x, not 0x%02x", when, i, home->bytes[i],
                        home->committed[i]);
}

/* Commands that use the buffer may end after it, and threads of the library let go of it. */
void model_home_check(model *m, const data *d)
{
    for (int i = 0; i < 20000 && !atomic_load(&d->home->is_closed); i++)
        m->p.let_go_on();
    if (!atomic_load(&d->home->is_closed))
        model_wrong(m, "a buffer has gone, and its home was not closed");
    check_content(m, d->home, "when its buffer has gone");
}

/* What a commit makes of the model: all of it known, or as it was. */
static void committed(model *m, const data *d)
{
    lair *home = d->home;

    memcpy(home->committed, d->bytes, d->size);
    memcpy(home->known, d->known, d->size);
    home->is_torn = false;
    check_content(m, home, "after a commit");
    m->counts.commits++;
}

void model_commit(model *m)
{
    handle    *h = model_any(m);
    usm_status st;

    for (int tries = 0; h != NULL && h->data->home == NULL && tries < 8; tries++)
        h = model_any(m);
    if (h == NULL || h->data->home == NULL || h->is_sub)
        return;
    model_end_overlapping(m, h->data, 0, h->data->size);
    model_tell(m, "commit buffer %zd", h - m->handles);
    st = usm_buffer_commit(h->buf);
    if (st == USM_OK) {
        committed(m, h->data);
        return;
    }
    h->data->home->is_torn = true;
    model_judge(m, st, "usm_buffer_commit");
    if (m->p.heal == NULL || model_pick(m, 2) != 0)
        return;
    m->p.heal();
    for (int tries = 0; tries < 4 && st != USM_OK; tries++)
        st = usm_buffer_commit(h->buf);
    if (st == USM_OK)
        committed(m, h->data);
    else if (st != USM_E_AGAIN) /* others hold all of memory */
        model_wrong(m, "a commit still fails with %s when all faults are gone",
                    usm_status_name(st));
    m->p.resume();
}
