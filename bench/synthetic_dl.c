/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The allocations of training a transformer: 24 layers, h = 1024, 16 heads, 50 257 words, bf16.
 *
 * No trace of a real training run can be downloaded; this is the tensor list that the equations of
 * a layer give.  A step is: forward (what backward needs is saved), loss, backward (gradients of
 * activations are freed as they are consumed, saved tensors freed layer by layer, gradients of
 * parameters kept), optimizer (two fp32 temporaries a parameter; its two fp32 states a parameter
 * are allocated in the first step and stay).  Called by engine.c through the list of workloads. */
#include "workload.h"

#define LAYERS     24u
#define WIDTH      1024u /* h */
#define HEADS      16u
#define WORDS      50257u
#define STEPS      20u
#define BF16       2u
#define FP32       4u
#define PER_LAYER  12u
#define PARAMETERS (LAYERS * PER_LAYER + 4)
#define SAVED_MAX  16u

typedef struct model {
    bench_trace *t;
    uint64_t     seed;
    uint64_t     batch, tokens, length; /* tokens = batch x length                          */
    bool         flash;                 /* attention keeps statistics in place of its scores */
    uint64_t     elements[PARAMETERS];
    uint64_t     gradient[PARAMETERS];
    uint64_t     saved[LAYERS][SAVED_MAX];
    unsigned     nsaved[LAYERS];
} model;

static uint64_t hidden(const model *m, uint64_t bytes)
{
    return m->tokens * WIDTH * bytes;
}

static void save(model *m, unsigned layer, uint64_t size)
{
    m->saved[layer][m->nsaved[layer]++] = bench_trace_add(m->t, size);
}

static void parameters(model *m)
{
    static const uint64_t layer[PER_LAYER] = {
        WIDTH,
        WIDTH, /* layer norm   */
        3ull * WIDTH * WIDTH,
        3ull * WIDTH, /* q, k, v      */
        1ull * WIDTH * WIDTH,
        WIDTH, /* projection   */
        WIDTH,
        WIDTH, /* layer norm   */
        4ull * WIDTH * WIDTH,
        4ull * WIDTH, /* fc1          */
        4ull * WIDTH * WIDTH,
        WIDTH, /* fc2          */
    };
    unsigned n = 0;

    for (unsigned l = 0; l < LAYERS; l++)
        for (unsigned i = 0; i < PER_LAYER; i++)
            m->elements[n++] = layer[i];
    m->elements[n++] = (uint64_t)WORDS * WIDTH; /* words, also the head */
    m->elements[n++] = 1024ull * WIDTH;         /* positions            */
    m->elements[n++] = WIDTH;                   /* the last layer norm  */
    m->elements[n++] = WIDTH;
    for (unsigned i = 0; i < n; i++)
        bench_trace_add(m->t, m->elements[i] * BF16);
}

static void layer_norm(model *m, unsigned layer)
{
    save(m, layer, hidden(m, BF16));
    save(m, layer, m->tokens * FP32); /* mean, 1 / deviation */
    save(m, layer, m->tokens * FP32);
}

static void attention(model *m, unsigned layer)
{
    uint64_t scores = m->batch * HEADS * m->length * m->length;

    save(m, layer, 3 * hidden(m, BF16)); /* q, k, v */
    if (m->flash) {
        save(m, layer, m->tokens * HEADS * FP32);
    } else {
        uint64_t raw    = bench_trace_add(m->t, scores * BF16);
        uint64_t masked = bench_trace_add(m->t, scores * BF16);

        bench_trace_drop(m->t, raw);
        save(m, layer, scores * BF16); /* softmax      */
        bench_trace_drop(m->t, masked);
        save(m, layer, scores); /* dropout mask */
    }
    save(m, layer, hidden(m, BF16)); /* attention out */
    save(m, layer, hidden(m, 1));    /* dropout mask  */
    save(m, layer, hidden(m, BF16)); /* residual      */
}

static void forward(model *m, unsigned layer)
{
    uint64_t workspace = bench_trace_add(m->t, 8493466); /* 8.1 MiB */
    uint64_t scalar[6];

    for (unsigned i = 0; i < 6; i++)
        scalar[i] = bench_trace_add(m->t, 4u << (bench_random(&m->seed) >> 8) % 9);
    layer_norm(m, layer);
    attention(m, layer);
    layer_norm(m, layer);
    save(m, layer, 4 * hidden(m, BF16)); /* fc1          */
    save(m, layer, 4 * hidden(m, BF16)); /* gelu         */
    save(m, layer, hidden(m, 1));        /* dropout mask */
    save(m, layer, hidden(m, BF16));     /* out          */
    for (unsigned i = 6; i-- > 0;)
        bench_trace_drop(m->t, scalar[i]);
    bench_trace_drop(m->t, workspace);
}

/* The gradient of the next tensor back; the one it was made of is freed. */
static uint64_t pass_back(model *m, uint64_t from, uint64_t size)
{
    uint64_t to = bench_trace_add(m->t, size);

    bench_trace_drop(m->t, from);
    return to;
}

static void parameter_gradient(model *m, unsigned i)
{
    m->gradient[i] = bench_trace_add(m->t, m->elements[i] * BF16);
}

static uint64_t attention_backward(model *m, uint64_t grad)
{
    uint64_t scores = m->batch * HEADS * m->length * m->length * BF16;

    if (!m->flash) {
        grad = pass_back(m, grad, scores);
        grad = pass_back(m, grad, scores);
    }
    return pass_back(m, grad, 3 * hidden(m, BF16));
}

static uint64_t backward(model *m, unsigned layer, uint64_t grad)
{
    unsigned first     = layer * PER_LAYER;
    uint64_t residual  = bench_trace_add(m->t, hidden(m, BF16));
    uint64_t workspace = bench_trace_add(m->t, 8493466);

    grad = pass_back(m, grad, 4 * hidden(m, BF16));
    parameter_gradient(m, first + 10);
    parameter_gradient(m, first + 11);
    grad = pass_back(m, grad, 4 * hidden(m, BF16));
    grad = pass_back(m, grad, hidden(m, BF16));
    parameter_gradient(m, first + 8);
    parameter_gradient(m, first + 9);
    grad = pass_back(m, grad, hidden(m, BF16));
    parameter_gradient(m, first + 6);
    parameter_gradient(m, first + 7);
    grad = pass_back(m, grad, hidden(m, BF16));
    parameter_gradient(m, first + 4);
    parameter_gradient(m, first + 5);
    grad = attention_backward(m, grad);
    parameter_gradient(m, first + 2);
    parameter_gradient(m, first + 3);
    grad = pass_back(m, grad, hidden(m, BF16));
    parameter_gradient(m, first);
    parameter_gradient(m, first + 1);
    bench_trace_drop(m->t, workspace);
    bench_trace_drop(m->t, residual);
    while (m->nsaved[layer] > 0)
        bench_trace_drop(m->t, m->saved[layer][--m->nsaved[layer]]);
    return grad;
}

/* Logits, their fp32 copy and gradient, the bf16 gradient; gives the gradient of the last layer. */
static uint64_t loss(model *m)
{
    bench_trace *t      = m->t;
    uint64_t     logits = bench_trace_add(t, m->tokens * WORDS * BF16);
    uint64_t     wide   = bench_trace_add(t, m->tokens * WORDS * FP32);
    uint64_t     dwide  = bench_trace_add(t, m->tokens * WORDS * FP32);
    uint64_t     dlogits, grad;

    bench_trace_drop(t, wide);
    dlogits = bench_trace_add(t, m->tokens * WORDS * BF16);
    bench_trace_drop(t, dwide);
    bench_trace_drop(t, logits);
    grad = bench_trace_add(t, hidden(m, BF16));
    parameter_gradient(m, LAYERS * PER_LAYER);
    bench_trace_drop(t, dlogits);
    parameter_gradient(m, LAYERS * PER_LAYER + 2);
    parameter_gradient(m, LAYERS * PER_LAYER + 3);
    return pass_back(m, grad, hidden(m, BF16));
}

static void optimizer(model *m, bool first)
{
    for (unsigned i = 0; i < PARAMETERS; i++) {
        uint64_t a, b;

        if (first) {
            bench_trace_add(m->t, m->elements[i] * FP32);
            bench_trace_add(m->t, m->elements[i] * FP32);
        }
        a = bench_trace_add(m->t, m->elements[i] * FP32);
        b = bench_trace_add(m->t, m->elements[i] * FP32);
        bench_trace_drop(m->t, a);
        bench_trace_drop(m->t, b);
    }
    for (unsigned i = 0; i < PARAMETERS; i++)
        bench_trace_drop(m->t, m->gradient[i]);
}

static void step(model *m, bool first)
{
    uint64_t embedded = bench_trace_add(m->t, hidden(m, BF16));
    uint64_t grad;

    for (unsigned l = 0; l < LAYERS; l++)
        forward(m, l);
    grad = loss(m);
    for (unsigned l = LAYERS; l-- > 0;)
        grad = backward(m, l, grad);
    parameter_gradient(m, LAYERS * PER_LAYER + 1);
    bench_trace_drop(m->t, grad);
    bench_trace_drop(m->t, embedded);
    optimizer(m, first);
}

static bool make(bench_trace *t, uint64_t batch, bool variable, bool flash, uint64_t seed)
{
    static model m;

    m = (model){.t = t, .seed = seed, .batch = batch, .flash = flash};
    parameters(&m);
    for (unsigned i = 0; i < STEPS; i++) {
        /* 256 to 1024 words in steps of 32 */
        m.length = variable ? 256 + 32 * ((bench_random(&m.seed) >> 8) % 25) : 1024;
        m.tokens = m.batch * m.length;
        step(&m, i == 0);
    }
    return bench_trace_finish(t);
}

bool bench_make_dl_fixed(bench_trace *t, uint64_t seed)
{
    return make(t, 4, false, false, seed);
}

bool bench_make_dl_variable(bench_trace *t, uint64_t seed)
{
    return make(t, 4, true, false, seed);
}

bool bench_make_dl_flash(bench_trace *t, uint64_t seed)
{
    return make(t, 16, true, true, seed);
}
