/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The page: files that the build has put into this program (usm_embed), some of them those of the
 * profile's page, and samples of apps. */
#include "web.h"

#include <string.h>

extern const char   web_index_html[];
extern const size_t web_index_html_size;
extern const char   web_icon_svg[];
extern const size_t web_icon_svg_size;
extern const char   web_style_css[];
extern const size_t web_style_css_size;
extern const char   usm__draw_css[];
extern const size_t usm__draw_css_size;
extern const char   usm__draw_js[];
extern const size_t usm__draw_js_size;
extern const char   web_app_js[];
extern const size_t web_app_js_size;
extern const char   web_compose_js[];
extern const size_t web_compose_js_size;
extern const char   web_fields_js[];
extern const size_t web_fields_js_size;
extern const char   web_graph_js[];
extern const size_t web_graph_js_size;
extern const char   web_jobs_js[];
extern const size_t web_jobs_js_size;
extern const char   web_json_js[];
extern const size_t web_json_js_size;
extern const char   web_machine_js[];
extern const size_t web_machine_js_size;
extern const char   web_memory_js[];
extern const size_t web_memory_js_size;
extern const char   web_memory_view_js[];
extern const size_t web_memory_view_js_size;
extern const char   web_run_js[];
extern const size_t web_run_js_size;
extern const char   web_sample_integral_cl[];
extern const size_t web_sample_integral_cl_size;
extern const char   web_sample_integral_json[];
extern const size_t web_sample_integral_json_size;
extern const char   web_sample_md5_cl[];
extern const size_t web_sample_md5_cl_size;
extern const char   web_sample_md5_json[];
extern const size_t web_sample_md5_json_size;

static const struct {
    const char   *path, *type, *text;
    const size_t *size;
} files[] = {
    {"/", "text/html; charset=utf-8", web_index_html, &web_index_html_size},
    {"/icon.svg", "image/svg+xml; charset=utf-8", web_icon_svg, &web_icon_svg_size},
    {"/style.css", "text/css; charset=utf-8", web_style_css, &web_style_css_size},
    {"/draw.css", "text/css; charset=utf-8", usm__draw_css, &usm__draw_css_size},
    {"/draw.js", "text/javascript; charset=utf-8", usm__draw_js, &usm__draw_js_size},
    {"/app.js", "text/javascript; charset=utf-8", web_app_js, &web_app_js_size},
    {"/compose.js", "text/javascript; charset=utf-8", web_compose_js, &web_compose_js_size},
    {"/fields.js", "text/javascript; charset=utf-8", web_fields_js, &web_fields_js_size},
    {"/graph.js", "text/javascript; charset=utf-8", web_graph_js, &web_graph_js_size},
    {"/jobs.js", "text/javascript; charset=utf-8", web_jobs_js, &web_jobs_js_size},
    {"/json.js", "text/javascript; charset=utf-8", web_json_js, &web_json_js_size},
    {"/machine.js", "text/javascript; charset=utf-8", web_machine_js, &web_machine_js_size},
    {"/memory.js", "text/javascript; charset=utf-8", web_memory_js, &web_memory_js_size},
    {"/memory_view.js", "text/javascript; charset=utf-8", web_memory_view_js,
     &web_memory_view_js_size},
    {"/run.js", "text/javascript; charset=utf-8", web_run_js, &web_run_js_size},
    {"/samples/integral.cl", "text/plain; charset=utf-8", web_sample_integral_cl,
     &web_sample_integral_cl_size},
    {"/samples/integral.json", "text/plain; charset=utf-8", web_sample_integral_json,
     &web_sample_integral_json_size},
    {"/samples/md5.cl", "text/plain; charset=utf-8", web_sample_md5_cl, &web_sample_md5_cl_size},
    {"/samples/md5.json", "text/plain; charset=utf-8", web_sample_md5_json,
     &web_sample_md5_json_size},
};

bool files_answer(request *r, int *status)
{
    if (strcmp(r->info->request_method, "GET") != 0 && strcmp(r->info->request_method, "HEAD") != 0)
        return false;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(files[i].path, r->info->local_uri) == 0) {
            *status = answer(r, 200, files[i].type, files[i].text, *files[i].size);
            return true;
        }
    return false;
}
