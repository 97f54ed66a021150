/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of usm-run: an app, a graph of kernels described by a JSON file.
 *
 *     place.c    where in the text a value is, for messages: file:line: reason
 *     read.c     parses nodes, kernels, edges; reports all errors that it can find
 *     fields.c   fields of its objects: allowed names, types, ranges
 *     bytes.c    bytes of inputs, and outputs as text
 *     stores.c   values in data servers
 *     build.c    kernels and the graph of libusm
 *     remote.c   what a unit elsewhere has to know of the app, and the app that it makes of that
 *     template.c nodes that are templates
 *     pipeline.c those that are several maps behind each other
 *     types.c    kinds of nodes that users add
 *     show.c     progress and the dot text
 *     simulate.h what would happen on another machine
 *     main.c     the command line */
#ifndef USM_RUN_APP_H
#define USM_RUN_APP_H

#include "beneath.h"
#include "units/app.h"

#include "base/hash.h"
#include "monitor/graph_file.h"

#include <usm/graph.h>
#include <usm/template.h>

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A value of the file, and where it begins in the text. */
typedef struct value {
    json_t     *json; /* NULL: it is missing */
    const char *at;
} value;

typedef struct app_image {
    usm_image_type    type;
    char             *data; /* of the file; of a library: its handle */
    size_t            size;
    usm_native_kernel native;
} app_image;

enum { IMAGES_MAX = 4 };

typedef struct app_kernel {
    const char *name, *function, *options;
    value       at;
    app_image   images[IMAGES_MAX];
    size_t      nimages;
} app_kernel;

/* A function of a kernel, built. */
typedef struct app_function {
    const app_kernel *kernel;
    char             *name;
    usm_team_kernel  *built;
} app_function;

/* A node that is a template. */
typedef struct app_template {
    usm_template_desc     desc;
    usm_template_run_desc run;
    char                  name[60]; /* of its kernel */
    char                 *head;
    unsigned char        *param;
    size_t                param_size;
    uint64_t              count; /* as the file says; 0: it does not */
    usm_template         *built;
    struct app           *app;
    bool                  is_stage; /* of a pipeline */
    char                  stage_name[80];
    bool                  is_pipeline; /* then it has these, and of the above only `run.count` */
    struct app_node      *stages;
    size_t                nstages;
    uint64_t              batch; /* elements; 0: the file does not say */
} app_template;

typedef struct app_node {
    usm_node_desc  desc;
    value          at;
    const char    *kernel; /* its name; NULL: input or template */
    app_template  *tpl;    /* NULL: it is none */
    unsigned char *data;
    size_t         size;
    value          output;  /* json NULL: none */
    uint32_t       number;  /* in the graph */
    bool           follows; /* it reads the node before it, of the same user's type */
} app_node;

/* A data server, or several, that values are in. */
typedef struct app_store app_store;

typedef struct app {
    const char     *path; /* "-": the standard input, with names relative to the working folder */
    char           *text, *folder;
    size_t          text_size;
    const unit_app *remote; /* what another usm-run sent, in the place of files; NULL: files */
    tool_root     within; /* if its path is set: the folder that holds all files the app may name */
    json_t       *root;
    unsigned      mistakes;
    app_kernel   *kernels;
    size_t        nkernels;
    app_node     *nodes;
    size_t        nnodes;
    json_t       *numbers; /* of nodes, by name */
    const char   *types;   /* a folder; NULL: there are no types of the user */
    json_t       *made;    /* keeps what nodes of these types became */
    json_t       *lasts;   /* of these nodes, the number of the last that each became */
    json_t       *typed;   /* {node, type} of each */
    value         edges;
    const char   *policy; /* NULL: it names none */
    app_function *functions;
    size_t        nfunctions;
    char          key[33]; /* a hash of kernels: usm_graph_run_desc.resume_key */
    usm_team     *team;
    usm_graph    *graph;
    volatile sig_atomic_t *is_called_off; /* NULL: nothing runs */
    const char           **options;       /* of the command line: "NAME:SERVERS" */
    size_t                 noptions;
    app_store             *stores;
    size_t                 nstores;
    bool                   is_dry; /* values are not read: nothing runs */
} app;

/* ---- place.c */
value member(value object, const char *key);
value element(value array, size_t index);
/* The same for all elements in their order, without beginning anew for each: *end is NULL before
 * the first one. */
value next_element(value array, size_t index, const char **end);
/* The position after the value at `at`. */
const char *value_end(const char *at);
unsigned    line_of(const app *a, const char *at);
/* Prints "path:line: ...", or "usm-run: ..." for a file that could not be read, and counts the
 * error.  Returns false. */
bool mistake(app *a, const char *at, const char *format, ...) USM_PRINTF(3, 4);

/* ---- read.c */
bool app_read(app *a, const char *path);
/* Only the text, and what it says. */
bool read_json(app *a, const char *path);
/* The same of what another usm-run sent. */
bool app_read_remote(app *a, const unit_app *remote);
void app_free(app *a);
bool read_node(app *a, value at);
/* The node of a name; of a user's type the first that it became, and the last. */
app_node *app_find(app *a, const char *name);
app_node *app_last(app *a, const char *name);

/* ---- fields.c: false, and an error is reported, if a field is wrong; absent ones leave *out */
bool check_keys(app *a, value object, const char *what, const char *const *keys);
bool get_text(app *a, value object, const char *key, const char **out);
bool get_number(app *a, value object, const char *key, uint64_t least, uint64_t most,
                uint64_t *out);
/* null is as if it were absent */
bool  get_real(app *a, value object, const char *key, double least, double *out);
bool  get_sizes(app *a, value object, const char *key, size_t *out, uint32_t *count);
void *need(void *memory); /* ends the program if memory is NULL */
/* Interprets a path as the file does: relative to its folder. */
char *path_of(const app *a, const char *name);
/* Opens a file of the app for reading or writing, unless it lies outside of `within`: NULL, and
 * errno. */
FILE *open_file(const app *a, const char *path, bool is_output);
/* The text of errno after open_file(). */
const char *open_error(const app *a);
/* NULL, and an error is reported. */
char *read_file(app *a, value at, const char *name, size_t *size);

/* ---- bytes.c */
bool read_data(app *a, app_node *node);
/* Appends what one piece or an array of them describes to node->data. */
bool read_pieces(app *a, app_node *node, value data);
/* The name in OpenCL C of a type of numbers, and its size; NULL: there is none. */
const char *number_name(const char *name, size_t *size);
const char *number_names(void);
bool        check_output(app *a, value output);
/* Writes the text to be printed to `out`. */
bool write_output(app *a, const app_node *node, FILE *out);

/* ---- stores.c.  v: "NAME:KEY".  False, and an error is reported with its place */
bool stores_check(app *a, value list);
bool check_value(app *a, value v);
bool size_of_value(app *a, value v, size_t *size);
bool read_value(app *a, value v, void *data, size_t size);
bool write_value(app *a, value v, const void *data, size_t size);
void stores_free(app *a);

/* ---- build.c: false, and the reason is reported */
bool app_load_kernels(app *a);
bool app_build(app *a);
/* Loads a library of the app, which stays loaded; NULL, and dlerror() is the reason. */
void *open_library(const app *a, const char *name);
/* Reports why a call for the whole graph failed: with the line of the node that the message
 * names; without one it is the file's fault only if what it asks for is invalid. */
bool app_failed(app *a);

/* The name of the kernel's i-th image: a form, as the file has it. */
const char *app_form(const app_kernel *k, size_t i);

/* ---- remote.c */
/* What units have to know of the app, whose kernels are loaded; freed by remote_free(). */
bool remote_describe(const app *a, unit_app *out);
void remote_free(unit_app *u);
/* On a unit: how large an input is, or what a template gives.  false, and an error is reported. */
bool remote_size(app *a, const app_node *n, size_t *size);
/* usm-run --unit: serves another usm-run over the standard input and output, with the other ranks of
 * its job; job: as of usm_job_join(), or NULL.  The exit status. */
int remote_serve(const char *device, const char *job);

/* ---- template.c: false, and the reason is reported */
bool template_kind(const char *name, usm_template_kind *kind); /* reports nothing */
bool read_template(app *a, app_node *n);
/* The same on a unit, where no template is built: the app's machine runs it. */
bool read_remote_template(app *a, app_node *n);
/* Adds all that a template's blocks depend on besides its inputs. */
bool hash_template(app *a, const app_node *n, usm__hash *hash);
/* Builds them, and finds the sizes of what they give. */
bool build_templates(app *a);
bool build_template(app *a, app_node *n);
void free_template(app_template *t);

/* ---- pipeline.c: false, and the reason is reported */
bool is_pipeline(const char *kind); /* reports nothing */
bool read_pipeline(app *a, app_node *n);
bool build_pipeline(app *a, app_node *n);
/* bytes: what the nodes before give. */
bool find_pipeline_size(app *a, app_node *n, uint64_t bytes);

/* ---- types.c: false, and the reason is reported */
bool read_typed_node(app *a, value at, const char *name, const char *kind);
void check_typed_nodes(app *a);
/* The app's text with what these nodes became in their place; from malloc(). */
char *plain_text(const app *a);

/* ---- energy.c: after a run whose team counts energy */
struct usm__json;
void energy_say(const app *a);
/* "energy": numbers of joules; "nodes" in the order of the file. */
void energy_put(struct usm__json *j, const app *a);

/* ---- show.c */
typedef struct progress {
    app                   *a;
    bool                   is_shown, is_json;
    bool                   is_tty, is_open; /* open: its line must still be ended */
    volatile sig_atomic_t *is_called_off;
    usm__monitor_graph     graph; /* for others of this user */
    usm_progress           last;  /* of JSON; its shares are `shares` */
    double                *shares;
} progress;
bool show_progress(const usm_progress *p, void *user);
/* At the end: text, or the last line of JSON again, with it. */
void show_energy(const progress *show);
bool show_dot(app *a);

#endif
