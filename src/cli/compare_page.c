/* compare_page.c - the report: everything about a comparison in one HTML file. */
/* SPDX-License-Identifier: MIT */
#include "canvas.h"
#include "compare_output.h"
#include "compare_store.h"
#include "say.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES                                                                                 \
    ((size_t)48 << 20) /* of pictures in the page; those beyond are links into the folder */

struct page {
    FILE *out;
    const struct results *results;
    const struct comparison *comparison;
    size_t n_bytes;
    bool linked; /* some pictures are not in the page */
};

static const char style[] =
    ":root{color-scheme:light "
    "dark;--paper:#fff;--ink:#1e1e1e;--faint:#666;--grid:#ddd;--card:#f5f6f8;--mark:#e3f1e8;"
    "--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#e69f00;--c5:#56b4e9}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#16181c;--ink:#e8e8e8;--faint:#a0a4aa;--grid:#"
    "34383f;"
    "--card:#20242a;--mark:#1d3a2b;--c0:#4a9fe0;--c1:#f0803c;--c2:#2fc495;--c5:#8fd0f5}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;background:var(--paper);color:var(--ink);margin:0 "
    "auto;padding:1.5rem;"
    "max-width:76rem}\n"
    "h1{font-size:1.5rem;margin:0}h2{font-size:1.15rem;margin:2.2rem 0 "
    ".6rem}h3{font-size:1rem;margin:1.4rem 0 .5rem}\n"
    "p{margin:.3rem 0}.faint{color:var(--faint)}small{color:var(--faint)}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(20rem,1fr));gap:1rem}\n"
    ".card{background:var(--card);border-radius:8px;padding:.9rem 1.1rem}.card "
    "b{font-size:1.1rem}\n"
    "code{font:13px ui-monospace,monospace;background:var(--paper);padding:.15rem "
    ".35rem;border-radius:4px;"
    "overflow-wrap:anywhere}\n"
    ".wide{overflow-x:auto}svg{max-width:100%;height:auto;display:block}\n"
    "table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums;white-space:"
    "nowrap}\n"
    "th,td{padding:.25rem .28rem;text-align:right;border-bottom:1px solid var(--grid)}\n"
    "th:first-child,td:first-child{text-align:left}\n"
    "th button{all:unset;cursor:pointer;font-weight:600}th button:focus-visible{outline:2px solid "
    "var(--c0)}\n"
    "th[aria-sort=ascending] button::after{content:' \\2191'}\n"
    "th[aria-sort=descending] button::after{content:' \\2193'}\n"
    "tr.front td{background:var(--mark)}td small{font-size:.8em}\n"
    ".grid{display:grid;gap:.5rem;justify-content:start;align-items:start;margin-top:.6rem}\n"
    ".grid>b{align-self:end;font-size:.85rem}\n"
    "figure{margin:0}figure button{all:unset;cursor:zoom-in;display:block}\n"
    "figure button:focus-visible{outline:2px solid var(--c0)}\n"
    "figure img{display:block;width:var(--w);height:auto}img.small{image-rendering:pixelated}\n"
    "figcaption{font-size:.78rem;line-height:1.3;width:var(--w)}.none{background:var(--card);"
    "padding:.4rem;"
    "box-sizing:border-box;width:var(--w);min-height:4rem;font-size:.72rem;color:var(--faint);"
    "overflow-wrap:anywhere}\n"
    "dialog{border:0;border-radius:10px;background:var(--card);color:var(--ink);padding:1rem;max-"
    "width:96vw}\n"
    "dialog::backdrop{background:#000a}.pair{position:relative;width:min(80vmin,64rem)}\n"
    ".pair img{display:block;width:100%;height:auto}.pair img+img{position:absolute;inset:0}\n"
    ".pair i{position:absolute;top:0;bottom:0;width:2px;background:#fff;box-shadow:0 0 3px "
    "#000;pointer-events:none}\n"
    "dialog input{width:100%;margin:.6rem 0}dialog "
    "div.names{display:flex;justify-content:space-between;gap:1rem}\n"
    "dialog form{text-align:right;margin:0}dialog form button{font:inherit;padding:.2rem .8rem}\n";

/* Sorting, and the slider between a cell (left of the line) and its reference (right of it). */
static const char script[] =
    "for(const t of document.querySelectorAll('table.sort')){const "
    "heads=[...t.tHead.rows[0].cells];\n"
    "heads.forEach((h,i)=>h.querySelector('button').addEventListener('click',()=>{\n"
    "const "
    "up=h.getAttribute('aria-sort')!=='ascending';heads.forEach(x=>x.removeAttribute('aria-sort'));"
    "\n"
    "h.setAttribute('aria-sort',up?'ascending':'descending');\n"
    "const key=r=>{const v=r.cells[i].dataset.v;return "
    "v===undefined?r.cells[i].textContent:v===''?NaN:+v};\n"
    "const rows=[...t.tBodies[0].rows];rows.sort((a,b)=>{const x=key(a),y=key(b);\n"
    "if(typeof x==='string')return (up?1:-1)*x.localeCompare(y,'en',{numeric:true});\n"
    "if(isNaN(x)||isNaN(y))return isNaN(x)-isNaN(y);return "
    "up?x-y:y-x});t.tBodies[0].append(...rows)}));}\n"
    "const "
    "d=document.querySelector('dialog'),[own,ref]=d.querySelectorAll('img'),bar=d.querySelector('i'"
    "),\n"
    "range=d.querySelector('input');\n"
    "const move=()=>{ref.style.clipPath=`inset(0 0 0 "
    "${range.value}%)`;bar.style.left=range.value+'%'};\n"
    "range.addEventListener('input',move);\n"
    "d.querySelector('.pair').addEventListener('pointermove',e=>{if(e.pointerType==='mouse'||e."
    "buttons){\n"
    "const r=e.currentTarget.getBoundingClientRect();\n"
    "range.value=Math.max(0,Math.min(100,100*(e.clientX-r.left)/r.width));move()}});\n"
    "document.addEventListener('click',e=>{const "
    "b=e.target.closest('button[data-ref]');if(!b)return;\n"
    "const img=b.querySelector('img'),other=document.getElementById(b.dataset.ref);\n"
    "own.src=img.src;own.className=img.className;ref.src=other.src;ref.className=other.className;\n"
    "d.querySelector('.names').firstChild.textContent=b.dataset.name;range.value=50;move();d."
    "showModal()});\n"
    "d.addEventListener('click',e=>{if(e.target===d)d.close()});\n";

/* ---- pieces -------------------------------------------------------------------------------- */

static void put_base64(FILE *out, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        unsigned v = (unsigned)bytes[i] << 16;
        if (i + 1 < n) v |= (unsigned)bytes[i + 1] << 8;
        if (i + 2 < n) v |= bytes[i + 2];
        fputc(digits[v >> 18], out);
        fputc(digits[v >> 12 & 63], out);
        fputc(i + 1 < n ? digits[v >> 6 & 63] : '=', out);
        fputc(i + 2 < n ? digits[v & 63] : '=', out);
    }
}

/* src="..." of a file in a folder. */
static void put_source(struct page *p, const char *folder, const char *file)
{
    size_t n = 0;
    char *bytes = store_read(folder, file, &n);
    fputs(" src=\"", p->out);
    if (bytes && p->n_bytes + n <= MOST_BYTES) {
        fputs("data:image/png;base64,", p->out);
        put_base64(p->out, (const unsigned char *)bytes, n);
        p->n_bytes += n;
    } else {
        canvas_escape(p->out, file);
        p->linked = true;
    }
    fputc('"', p->out);
    free(bytes);
}

static void put_value(FILE *out, const struct spread *s, const char *format, bool spread)
{
    if (isnan(s->mean)) {
        fputs("<td data-v=\"\">\xE2\x80\x93</td>", out);
        return;
    }
    char text[32], more[32];
    snprintf(text, sizeof text, format, s->mean);
    snprintf(more, sizeof more, format, s->deviation);
    fprintf(out, "<td data-v=\"%.9g\">%s", s->mean, text);
    if (spread && s->n > 1) fprintf(out, " <small>\xC2\xB1%s</small>", more);
    fputs("</td>", out);
}

static void put_head(FILE *out, const char *const *names, size_t n)
{
    fputs("<thead><tr>", out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "<th scope=\"col\"><button>%s</button></th>", names[i]);
    fputs("</tr></thead><tbody>\n", out);
}

/* ---- sections of the page ------------------------------------------------------------------ */

static int steps_of(const struct page *p, size_t setting)
{
    return p->comparison->cells[p->results->settings[setting].first].request.settings.n_steps;
}

static void put_choice(struct page *p, const char *what, size_t setting)
{
    const struct setting *s = &p->results->settings[setting];
    const struct comparison *c = p->comparison;
    char *command = setting_command(c, s);
    fprintf(p->out, "<p>%s: <b>%d steps</b> of ", what, steps_of(p, setting));
    for (size_t k = 0; k < p->results->n_series; k++)
        for (size_t i = 0; i < p->results->series[k].n; i++)
            if (p->results->series[k].settings[i] == setting)
                canvas_escape(p->out, p->results->series[k].name);
    fprintf(p->out, ", %.2f s a picture<br><code>", s->q[Q_SECONDS].mean);
    canvas_escape(p->out, command);
    fputs("</code></p>", p->out);
    free(command);
}

static void put_answers(struct page *p)
{
    const struct results *r = p->results;
    fputs("<h2>How few steps are enough?</h2>", p->out);
    if (!results_compared(r)) {
        fputs("<p>Noise is drawn on the way, so no picture can be compared with the reference one by "
              "one. The statistics below can.</p>\n",
              p->out);
        return;
    }
    fputs("<div class=\"cards\">\n", p->out);
    for (size_t t = 0; t < r->n_targets; t++) {
        char text[48];
        target_describe(&r->targets[t], text);
        fprintf(p->out, "<div class=\"card\"><p class=\"faint\">Within %s of the reference</p>",
                text);
        if (r->fewest[t] == SIZE_MAX) {
            fputs("<p><b>No setting here</b></p></div>\n", p->out);
            continue;
        }
        put_choice(p, "Fewest", r->fewest[t]);
        if (r->fastest[t] != r->fewest[t]) put_choice(p, "Fastest", r->fastest[t]);
        fputs("<p>", p->out);
        for (size_t k = 0, n = 0; k < r->n_series; k++) {
            if (r->settings[r->series[k].settings[0]].by_statistics) continue;
            fputs(n++ ? ", " : "", p->out);
            canvas_escape(p->out, r->series[k].name);
            if (r->series[k].fewest[t] == SIZE_MAX)
                fputs(": not reached", p->out);
            else
                fprintf(p->out, ": %d", steps_of(p, r->series[k].fewest[t]));
        }
        fputs("</p></div>\n", p->out);
    }
    fputs("</div>\n", p->out);
}

/* The numbers of a setting. */
static const struct column {
    enum quantity quantity; /* N_QUANTITIES: the statistics of the latents */
    const char *heading, *format;
    bool spread;   /* with the deviation */
    bool optional; /* left out where no setting has the number */
} columns[] = {
    {Q_PASSES, "passes", "%.0f", false, false},
    {Q_SECONDS, "seconds", "%.2f", true, false},
    {Q_RMSE, "latent RMSE", "%.3g", true, true},
    {Q_PSNR, "PSNR dB", "%.1f", true, false},
    {Q_SSIM, "SSIM", "%.3f", true, false},
    {Q_MS_SSIM, "MS-SSIM", "%.3f", true, false},
    {Q_SHARPER, "sharpness", "%.2f", true, false},
    {Q_CONTRAST, "contrast", "%.1f", true, false},
    {N_QUANTITIES, "statistics", "%.3g", false, false},
    {Q_CLIP, "CLIP", "%.1f", true, true},
    {Q_BACKGROUND, "background", "%.2f", false, true},
    {Q_NEAREST, "nearest", "%.2f", false, true},
    {Q_RANK, "rank", "%.1f", true, true},
};
#define N_COLUMNS (sizeof columns / sizeof columns[0])

static bool is_shown(const struct results *r, const struct column *column)
{
    return !column->optional || r->has[column->quantity];
}

static void put_row(struct page *p, const struct series *series, const struct setting *s)
{
    FILE *out = p->out;
    const struct spread statistics = {s->statistics, 0, 1};
    fprintf(out, "<tr%s><td>", s->pareto ? " class=\"front\"" : "");
    canvas_escape(out, series->name);
    fprintf(out, "</td><td data-v=\"%d\">%d</td>",
            p->comparison->cells[s->first].request.settings.n_steps,
            p->comparison->cells[s->first].request.settings.n_steps);
    for (size_t i = 0; i < N_COLUMNS; i++) {
        const struct column *c = &columns[i];
        if (is_shown(p->results, c))
            put_value(out, c->quantity == N_QUANTITIES ? &statistics : &s->q[c->quantity],
                      c->format, c->spread);
    }
    fprintf(out, "<td data-v=\"%zu\">%zu</td></tr>\n", s->n_done, s->n_done);
}

static void put_table(struct page *p)
{
    const struct results *r = p->results;
    const char *names[N_COLUMNS + 3] = {"setting", "steps"};
    size_t n = 2;
    for (size_t i = 0; i < N_COLUMNS; i++)
        if (is_shown(r, &columns[i])) names[n++] = columns[i].heading;
    names[n++] = "pictures";
    fputs("<h2>All settings</h2><p class=\"faint\">Means and standard deviations over prompts and "
          "seeds. Green: nothing "
          "is both faster and nearer to the reference. Click a heading to sort.</p>"
          "<div class=\"wide\"><table class=\"sort\">\n",
          p->out);
    put_head(p->out, names, n);
    for (size_t k = 0; k < r->n_series; k++)
        for (size_t i = 0; i < r->series[k].n; i++)
            put_row(p, &r->series[k], &r->settings[r->series[k].settings[i]]);
    fputs("</tbody></table></div>\n", p->out);
}

static void put_figure(struct page *p, const struct cell *cell, const char *name,
                       const char *reference_id)
{
    FILE *out = p->out;
    char caption[64];
    cell_caption(cell, caption);
    fputs("<figure>", out);
    if (cell->state != CELL_DONE) {
        fputs("<div class=\"none\">", out);
        canvas_escape(out, cell->why ? cell->why : "");
        fputs("</div>", out);
    } else {
        if (reference_id) {
            fprintf(out, "<button data-ref=\"%s\" data-name=\"", reference_id);
            canvas_escape(out, name);
            fputs("\">", out);
        }
        fprintf(out, "<img%s", cell->request.settings.width_px < 200 ? " class=\"small\"" : "");
        put_source(p, p->comparison->folder, cell->file);
        fputs(" alt=\"", out);
        canvas_escape(out, name);
        fprintf(out, "\">%s", reference_id ? "</button>" : "");
    }
    fputs("<figcaption>", out);
    canvas_escape(out, name);
    fprintf(out, "<br><small>%s", caption);
    cell_judgement(cell, caption);
    fputs(*caption ? "<br>" : "", out);
    canvas_escape(out, caption);
    fputs("</small></figcaption></figure>\n", out);
}

/* The picture that the slider shows on the other side; false when there is none. */
static bool put_reference(struct page *p, const struct cell *cell, const char *id)
{
    const struct comparison *c = p->comparison;
    bool is_file = c->reference.kind == REFERENCE_FILE;
    if (!is_file && !cell) return false;
    int width = is_file ? c->reference.image.width_px : cell->request.settings.width_px;
    fprintf(p->out, "<figure><img id=\"%s\"%s", id, width < 200 ? " class=\"small\"" : "");
    if (is_file)
        put_source(p, c->reference.path[0] == '/' ? "" : ".",
                   c->reference.path + (c->reference.path[0] == '/'));
    else
        put_source(p, c->folder, cell->file);
    fputs(" alt=\"reference\"><figcaption>reference", p->out);
    if (!is_file)
        fprintf(p->out, "<br><small>%s, %d steps</small>", cell->request.settings.scheduler,
                cell->request.settings.n_steps);
    fputs("</figcaption></figure>\n", p->out);
    return true;
}

static void put_section(struct page *p, const struct section *s, size_t number)
{
    const struct comparison *c = p->comparison;
    const struct axes *axes = &c->axes;
    char id[32];
    snprintf(id, sizeof id, "ref%zu", number);
    fputs("<h3>", p->out);
    canvas_escape(p->out, s->title);
    fputs("</h3>\n", p->out);
    bool has_reference = put_reference(p, s->problem ? problem_reference(c, s->problem) : NULL, id);
    fprintf(p->out,
            "<div class=\"wide\"><div class=\"grid\" "
            "style=\"grid-template-columns:repeat(%zu,var(--w))\">\n",
            s->n_columns);
    for (size_t x = 0; x < s->n_columns; x++) {
        char *heading = axis_heading(&axes->items[axes->columns], x);
        fputs("<b>", p->out);
        canvas_escape(p->out, heading);
        fputs("</b>", p->out);
        free(heading);
    }
    for (size_t i = 0; i < s->n_rows * s->n_columns; i++) {
        char *name = cell_heading(c, s->cells[i]);
        put_figure(p, s->cells[i], name, has_reference ? id : NULL);
        free(name);
    }
    fputs("</div></div>\n", p->out);
}

static void put_pictures(struct page *p)
{
    size_t n;
    struct section *sections = sections_make(p->comparison, &n);
    fputs("<h2>Pictures</h2><p class=\"faint\">Click a picture to slide between it and its "
          "reference.</p>\n",
          p->out);
    for (size_t i = 0; i < n; i++) put_section(p, &sections[i], i);
    sections_free(sections, n);
    if (p->linked)
        fputs("<p class=\"faint\">Some pictures are links into the folder, to keep this file "
              "small.</p>\n",
              p->out);
}

static void put_levels(struct page *p, const struct problem *problem)
{
    FILE *out = p->out;
    const struct dk_settings *first = &p->comparison->cells[problem->first].request.settings;
    for (size_t i = 0; i < problem->n_used; i++) {
        const struct dk_settings *s = &problem->levels[i].request.settings;
        fputs("<tr><td>", out);
        canvas_escape(out, first->prompt);
        fprintf(out, "</td><td data-v=\"%llu\">%llu</td><td data-v=\"%g\">%g</td><td>",
                (unsigned long long)first->seed, (unsigned long long)first->seed, first->guidance,
                first->guidance);
        canvas_escape(out, s->scheduler);
        fprintf(out, " %s</td><td data-v=\"%d\">%d</td>", s->sigmas ? s->sigmas : "", s->n_steps,
                s->n_steps);
        put_value(out, &(struct spread){i ? problem->changes[i] : NAN, 0, 1}, "%.2g", false);
        put_value(out, &(struct spread){i ? problem->changes_db[i] : NAN, 0, 1}, "%.1f", false);
        bool last = i + 1 == problem->n_used;
        fprintf(out, "<td>%s</td></tr>\n",
                !last                ? ""
                : problem->converged ? "converged"
                                     : "not converged");
    }
}

static void put_convergence(struct page *p)
{
    static const char *const names[] = {
        "prompt", "seed", "guidance", "solver", "steps", "change of the latent", "change, dB", ""};
    const struct comparison *c = p->comparison;
    fputs("<h2>The reference</h2>", p->out);
    if (c->reference.kind == REFERENCE_FILE) {
        fputs("<p>The picture ", p->out);
        canvas_escape(p->out, c->reference.path);
        fputs(" was given.</p>\n", p->out);
        return;
    }
    if (c->reference.kind == REFERENCE_SETTING) {
        fputs("<p>Each picture is measured against the one that ", p->out);
        canvas_escape(p->out, c->request->compare.reference);
        fputs(" makes of the same prompt, seed and guidance. Whether that one has converged was "
              "not looked at.</p>\n",
              p->out);
        return;
    }
    fprintf(
        p->out,
        "<p>The solution of the probability-flow ODE from the same starting noise. Its steps are "
        "doubled until the "
        "latent changes by less than %g (root mean square; latents have a spread of about 1).</p>"
        "<div class=\"wide\"><table class=\"sort\">\n",
        c->request->compare.tolerance);
    put_head(p->out, names, sizeof names / sizeof names[0]);
    for (size_t i = 0; i < c->n_problems; i++) put_levels(p, &c->problems[i]);
    fputs("</tbody></table></div>\n", p->out);
}

static void put_notes(struct page *p)
{
    bool draws = false;
    for (size_t i = 0; i < p->results->n_settings; i++)
        draws = draws || p->results->settings[i].by_statistics;
    fputs("<h2>What the numbers mean</h2><ul>\n"
          "<li><b>latent RMSE</b>: root mean square of the difference of the latents before "
          "decoding. "
          "<b>PSNR</b>: over all colour channels. <b>SSIM</b>: Wang et al. 2004 on the luminance, "
          "11 x 11 Gaussian "
          "window of sigma 1.5. <b>MS-SSIM</b>: Wang et al. 2003, up to five scales.</li>\n"
          "<li><b>sharpness</b>: root mean square gradient of the luminance, as a share of the "
          "reference's: below 1 is "
          "a blur. <b>contrast</b>: standard deviation of the luminance, of 255 levels.</li>\n"
          "<li><b>statistics</b>: means and standard deviations of the latents' channels, pooled "
          "over prompts and "
          "seeds, and how far they are from the reference's.</li>\n"
          "<li><b>seconds</b>: text, denoising and decoding of one picture, the model being open; "
          "they belong to this "
          "machine and its load.</li>\n",
          p->out);
    if (draws)
        fputs("<li>Schedulers that draw noise on the way do not converge to one picture. Theirs "
              "are not compared with "
              "the reference one by one; only statistics over the seeds are.</li>\n",
              p->out);
    if (p->results->has[Q_CLIP])
        fputs("<li><b>CLIP</b>: how well a picture fits its prompt, 100 max(cosine, 0) of the two "
              "embeddings of the CLIP that was given. Most pictures that fit have 20 to 35; "
              "differences count, not the number.</li>\n",
              p->out);
    if (p->results->has[Q_BACKGROUND])
        fputs("<li><b>background</b>: share of pictures whose corners are nearest to the colour "
              "that the prompt names.</li>\n",
              p->out);
    if (p->results->has[Q_NEAREST])
        fputs(
            "<li><b>nearest</b>: share of pictures that are nearer to the true picture of the "
            "named object than to that of any other object the model was trained on, in the asked "
            "layout and colour. <b>rank</b>: the named object's place among all, 1 being the "
            "nearest.</li>\n",
            p->out);
    fputs("</ul>\n", p->out);
}

static void put_facts(struct page *p)
{
    const struct comparison *c = p->comparison;
    const struct axis *prompts = axes_find(&c->axes, "prompt"),
                      *seeds = axes_find(&c->axes, "seed");
    fputs("<p class=\"faint\">", p->out);
    for (size_t i = 0; i < c->n_slots; i++) {
        fputs(i ? ", " : "model ", p->out);
        canvas_escape(p->out, c->slots[i].provenance.model_name);
    }
    fprintf(p->out, "; %zu prompt%s, %zu seed%s; darkroom %s, %s kernels</p>\n",
            prompts->values.n_items, prompts->values.n_items == 1 ? "" : "s", seeds->values.n_items,
            seeds->values.n_items == 1 ? "" : "s", DK_VERSION, dk_cpu_level());
}

/* ---- the page ------------------------------------------------------------------------------ */

/* The width that pictures are shown at: small ones enlarged. */
static int shown_px(const struct comparison *c)
{
    int width = 1;
    for (size_t i = 0; i < c->n_cells; i++)
        if (c->cells[i].state != CELL_REFUSED && c->cells[i].request.settings.width_px > width)
            width = c->cells[i].request.settings.width_px;
    return width > 192 ? 192 : width < 128 ? width * (int)ceil(128.0 / width) : width;
}

static void put_page(struct page *p)
{
    char *chart = chart_svg(p->results, p->comparison);
    fprintf(p->out,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width\">\n<title>Comparison</title>\n"
            "<style>\n%s:root{--w:%dpx}\n</style></head><body>\n<h1>Comparison</h1>\n",
            style, shown_px(p->comparison));
    put_facts(p);
    put_answers(p);
    fprintf(p->out, "<h2>Error against cost</h2><div class=\"wide\">%s</div>\n", chart);
    put_table(p);
    put_pictures(p);
    put_convergence(p);
    put_notes(p);
    fprintf(p->out,
            "<dialog aria-label=\"comparison with the reference\"><div class=\"pair\"><img "
            "alt=\"cell\">"
            "<img alt=\"reference\"><i></i></div><input type=\"range\" min=\"0\" max=\"100\" "
            "step=\"any\" "
            "aria-label=\"where the reference begins\"><div "
            "class=\"names\"><span></span><span>reference</span></div>"
            "<form "
            "method=\"dialog\"><button>close</button></form></dialog>\n<script>\n%s</script></"
            "body></html>\n",
            script);
    free(chart);
}

bool page_write(const struct results *results, const struct comparison *c, struct dk_error *err)
{
    char *text = NULL;
    size_t n = 0;
    struct page page = {.out = open_memstream(&text, &n), .results = results, .comparison = c};
    if (!page.out) return say_fail(err, DK_ERROR_MEMORY, "report.html: out of memory");
    put_page(&page);
    bool ok = fclose(page.out) == 0 || say_fail(err, DK_ERROR_MEMORY, "report.html: out of memory");
    ok = ok && store_write(c->folder, "report.html", text, n, err);
    free(text);
    return ok;
}
