/* Runs of plain instructions, executed for a few waves at a time: their registers stay in a cache from one instruction
   to the next, and an instruction costs no call of Python's.

   translate.py makes the micro-operations; what they compute is said by the tables in instructions/, and must come out
   bit for bit as the steps made of those do. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "numbers.h"

#define CHUNK 256 /* lanes that are executed together: some kilobytes of each instruction's operands */
#define SOURCES 5
#define RESULTS 3
#define TEMPORARIES 4
#define MOST_LANES 64

#ifndef GFXLAB_STAMP
#define GFXLAB_STAMP ""
#endif

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#elif defined(_MSC_VER)
#define INDEPENDENT __pragma(loop(ivdep))
#else
#define INDEPENDENT
#endif

/* ---- micro-operations -------------------------------------------------------------------------------------------- */

enum { VECTOR, SCALAR, CONSTANT, LANE_MASK, TEMPORARY };

/* A source: bits `shift` and up of a word, those of `mask`, extended by the bit `sign`; then the sign's modifiers.
   lanes: the number of a table of the lanes that it is taken from, or -1. */
typedef struct { i32 space, index; u32 shift, mask, sign, keep, flip; i32 lanes; } Source;

/* A result: the bits of `mask`, shifted left, beside the bits that the register keeps.
   lanes: the number of a table of the lanes that are written, or -1. */
typedef struct { i32 space, index; u32 shift, mask, keep; i32 lanes; } Result;

typedef struct {
    i32 kind, number, sources, results;
    i32 extra[8];
    Source source[SOURCES];
    Result result[RESULTS];
} Micro;

enum { LANEWISE, SCALAR_UNIT, READ_LANE, MATRIX, PERMUTE, LOCAL_LOAD, LOCAL_STORE };

/* Lanes that operands are taken from: bits 0 to 7 name one, and these say more. */
enum { EXISTS = 0x100, NAMED = 0x200, READS_ALL = 0x400, WRITES_ALL = 0x800 };

struct Run;
struct Waves;
struct Known;
typedef void Operation(u32 *const *to, const u32 *const *from, int n);
typedef struct {
    Operation *operations[
#define OPERATION(name, function) +1
#include "names.inc"
#undef OPERATION
    ];
    void (*multiply)(const double *a, const double *b, const float *c, float addend, float *d, const int *rows, int m,
                     int k);
    void (*halves)(const u32 *words, double *low, double *high, int n);
    void (*brains)(const u32 *words, double *low, double *high, int n);
    int (*execute)(const struct Run *run, const struct Waves *w, const struct Known *known, int from);
} Kernels;

static const char *const operation_names[] = {
#define OPERATION(name, function) #name,
#include "names.inc"
#undef OPERATION
};
enum { OPERATIONS = sizeof operation_names / sizeof *operation_names };

/* What follows is inlined into the function `execute` of each instruction set. */

/* ---- the waves ---------------------------------------------------------------------------------------------------- */

/* What all waves of the window have; strides in elements. mask: NULL where all lanes are on, live: all waves. */
typedef struct Waves {
    u32 *V, *S;
    unsigned char *scc;
    const unsigned char *mask, *live;
    Py_ssize_t register_stride, scalar_stride, scc_stride, mask_stride, live_stride;
    Py_ssize_t first; /* the number of the first one */
    int waves, lanes;
    const u32 *tables; /* of lanes, MOST_LANES each */
} Waves;

/* The waves that are executed now: from number `first` on. on: the mask as words, if not all lanes are on. */
typedef struct {
    const Waves *w;
    int first, waves, n, all_on;
    u32 on[CHUNK];
    u32 temporary[TEMPORARIES][CHUNK];
    u32 room[SOURCES + RESULTS][CHUNK];
    u32 shuffled[CHUNK];
} Chunk;

ALWAYS int is_live(const Waves *w, int wave) { return !w->live || w->live[wave * w->live_stride]; }
ALWAYS u32 *vector_register(Chunk *c, int index)
{
    return c->w->V + index * c->w->register_stride + (Py_ssize_t)c->first * c->w->lanes;
}
ALWAYS u32 *scalars_of(const Waves *w, int wave) { return w->S + wave * w->scalar_stride; }

ALWAYS void open_chunk(Chunk *c, int first, int waves)
{
    const Waves *w = c->w;
    c->first = first;
    c->waves = waves;
    c->n = waves * w->lanes;
    c->all_on = 1;
    if (!w->mask)
        return;
    u32 all = ~0u;
    for (int wave = 0; wave < waves; wave++) {
        const unsigned char *mask = w->mask + (first + wave) * w->mask_stride;
        for (int lane = 0; lane < w->lanes; lane++)
            all &= c->on[wave * w->lanes + lane] = word_if(mask[lane]);
    }
    c->all_on = all != 0;
}

ALWAYS int any_live(const Waves *w, int first, int waves)
{
    for (int wave = first; wave < first + waves; wave++)
        if (is_live(w, wave))
            return 1;
    return 0;
}

/* ---- operands ----------------------------------------------------------------------------------------------------- */

ALWAYS void spread_bits(const Chunk *c, int index, u32 *words)
{
    for (int wave = 0; wave < c->waves; wave++) {
        const u32 *bits = scalars_of(c->w, c->first + wave) + index;
        for (int lane = 0; lane < c->w->lanes; lane += 32) {
            u32 some = bits[lane / 32];
            for (int i = 0; i < 32; i++)
                *words++ = 0u - (some >> i & 1);
        }
    }
}

ALWAYS void fill(u32 *words, u32 value, int n)
{
    INDEPENDENT for (int i = 0; i < n; i++)
        words[i] = value;
}

ALWAYS void spread_scalars(const Chunk *c, int index, u32 *words)
{
    int lanes = c->w->lanes;
    for (int wave = 0; wave < c->waves; wave++)
        fill(words + wave * lanes, scalars_of(c->w, c->first + wave)[index], lanes);
}

/* Each lane's word from another lane; 0 where there is none, or it is switched off and may not be read. */
ALWAYS void take_from_lanes(const Chunk *c, const u32 *table, const u32 *from, u32 *to)
{
    int lanes = c->w->lanes;
    for (int first = 0; first < c->n; first += lanes)
        for (int lane = 0; lane < lanes; lane++) {
            u32 entry = table[lane], other = (u32)first + (entry & 0xFF);
            u32 reached = word_if(entry & EXISTS);
            if (!c->all_on && !(entry & READS_ALL))
                reached &= c->on[other];
            to[first + lane] = from[other] & reached;
        }
}

ALWAYS const u32 *fetch(Chunk *c, const Source *s, u32 *room)
{
    const u32 *from = room;
    const int n = c->n; /* in a local: words that are written might be it */
    if (s->space == VECTOR)
        from = vector_register(c, s->index);
    else if (s->space == TEMPORARY)
        from = c->temporary[s->index];
    else if (s->space == SCALAR)
        spread_scalars(c, s->index, room);
    else if (s->space == LANE_MASK)
        spread_bits(c, s->index, room);
    else
        fill(room, (u32)s->index, n);
    if (s->lanes >= 0) {
        take_from_lanes(c, c->w->tables + s->lanes * MOST_LANES, from, c->shuffled);
        from = c->shuffled;
        memcpy(room, from, (size_t)c->n * sizeof *room);
        from = room;
    }
    if (s->shift == 0 && s->mask == ~0u && s->keep == ~0u && s->flip == 0)
        return from;
    u32 shift = s->shift, mask = s->mask, sign = s->sign, keep = s->keep, flip = s->flip;
    INDEPENDENT for (int i = 0; i < n; i++)
        room[i] = (((((from[i] >> shift) & mask) ^ sign) - sign) & keep) ^ flip;
    return room;
}

/* Where an operation may write its result at once, without looking at lanes or at what the register keeps. */
ALWAYS u32 *place_of(Chunk *c, const Result *r, u32 *room)
{
    if (r->space == TEMPORARY)
        return c->temporary[r->index];
    int plain = r->space == VECTOR && c->all_on && r->mask == ~0u && !r->shift && !r->keep && r->lanes < 0;
    return plain ? vector_register(c, r->index) : room;
}

ALWAYS void pack_bits(Chunk *c, int index, const u32 *words)
{
    for (int wave = 0; wave < c->waves; wave++) {
        u32 *bits = scalars_of(c->w, c->first + wave) + index;
        int live = is_live(c->w, c->first + wave);
        for (int lane = 0; lane < c->w->lanes; lane += 32) {
            const u32 *some = words + wave * c->w->lanes + lane, *on = c->on + wave * c->w->lanes + lane;
            u32 packed = 0;
            if (c->all_on)
                for (int i = 0; i < 32; i++)
                    packed |= (some[i] & 1) << i;
            else
                for (int i = 0; i < 32; i++)
                    packed |= (some[i] & on[i] & 1) << i;
            if (live)
                bits[lane / 32] = packed;
        }
    }
}

/* Which lanes a result with a table of lanes is written in; as words. */
ALWAYS void lanes_written(const Chunk *c, const u32 *table, u32 *words)
{
    int lanes = c->w->lanes;
    for (int first = 0; first < c->n; first += lanes)
        for (int lane = 0; lane < lanes; lane++) {
            u32 entry = table[lane], written = word_if(entry & NAMED);
            if (!(entry & WRITES_ALL)) {
                written &= word_if(entry & EXISTS);
                if (!c->all_on && !(entry & READS_ALL))
                    written &= c->on[(u32)first + (entry & 0xFF)];
            }
            words[first + lane] = c->all_on ? written : written & c->on[first + lane];
        }
}

ALWAYS void finish(Chunk *c, const Result *r, const u32 *words)
{
    if (r->space == TEMPORARY)
        return;
    if (r->space == LANE_MASK) {
        pack_bits(c, r->index, words);
        return;
    }
    u32 *to = vector_register(c, r->index);
    if (to == words)
        return;
    const u32 shift = r->shift, mask = r->mask, keep = r->keep, *on = c->on;
    const int n = c->n;
    if (r->lanes >= 0) {
        lanes_written(c, c->w->tables + r->lanes * MOST_LANES, c->shuffled);
        on = c->shuffled;
    } else if (c->all_on) {
        INDEPENDENT for (int i = 0; i < n; i++)
            to[i] = (words[i] & mask) << shift | (to[i] & keep);
        return;
    }
    INDEPENDENT for (int i = 0; i < n; i++)
        to[i] = either(on[i], (words[i] & mask) << shift | (to[i] & keep), to[i]);
}

ALWAYS void run_lanewise(const Kernels *k, Chunk *c, const Micro *m)
{
    const u32 *from[SOURCES];
    u32 *to[RESULTS];
    for (int s = 0; s < m->sources; s++)
        from[s] = fetch(c, &m->source[s], c->room[s]);
    for (int r = 0; r < m->results; r++)
        to[r] = place_of(c, &m->result[r], c->room[SOURCES + r]);
    k->operations[m->number](to, from, c->n);
    for (int r = 0; r < m->results; r++)
        finish(c, &m->result[r], to[r]);
}

/* ---- one value a wave --------------------------------------------------------------------------------------------- */

#include "scalar.inc"

/* A scalar operand: 32 or 64 bits of registers, or a constant, whose high word is `flip`. wide: `lanes`. */
ALWAYS u64 scalar_source(const u32 *registers, const Source *s)
{
    if (s->space == CONSTANT)
        return pair((u32)s->index, s->flip);
    return pair(registers[s->index], s->lanes ? registers[s->index + 1] : 0);
}

ALWAYS void run_scalar(Chunk *c, const Micro *m)
{
    ScalarOperation *operation = scalar_operations[m->number];
    for (int wave = c->first; wave < c->first + c->waves; wave++) {
        if (!is_live(c->w, wave))
            continue;
        u32 *registers = scalars_of(c->w, wave);
        unsigned char *scc = c->w->scc + wave * c->w->scc_stride;
        u64 from[3] = {0};
        for (int s = 0; s < m->sources; s++)
            from[s] = scalar_source(registers, &m->source[s]);
        u32 bit = *scc;
        u64 result = operation(from, &bit);
        *scc = (unsigned char)bit;
        if (m->results > 0)
            registers[m->result[0].index] = (u32)result;
        if (m->results > 1)
            registers[m->result[0].index + 1] = (u32)(result >> 32);
    }
}

/* v_readfirstlane, v_readlane. extra[0]: the lane, or -1 for the first that is on. */
ALWAYS void run_read_lane(Chunk *c, const Micro *m)
{
    int lanes = c->w->lanes;
    const u32 *from = fetch(c, &m->source[0], c->room[0]);
    for (int wave = 0; wave < c->waves; wave++, from += lanes) {
        int lane = m->extra[0];
        if (lane < 0) {
            lane = 0;
            while (!c->all_on && lane < lanes && !c->on[wave * lanes + lane])
                lane++;
            lane = lane == lanes ? 0 : lane; /* as in the hardware where none is on */
        }
        if (is_live(c->w, c->first + wave))
            scalars_of(c->w, c->first + wave)[m->result[0].index] = from[lane];
    }
}

/* ds_bpermute: each lane names, in bytes, the lane that it reads; one that is off gives 0. extra[0]: is added. */
ALWAYS void run_permute(Chunk *c, const Micro *m)
{
    u32 lanes = (u32)c->w->lanes, *to = c->room[2];
    const u32 *where = fetch(c, &m->source[0], c->room[0]), *from = fetch(c, &m->source[1], c->room[1]);
    for (u32 first = 0; first < (u32)c->n; first += lanes)
        for (u32 lane = 0; lane < lanes; lane++) {
            u32 other = first + ((where[first + lane] + (u32)m->extra[0]) >> 2) % lanes;
            to[first + lane] = c->all_on ? from[other] : from[other] & c->on[other];
        }
    finish(c, &m->result[0], to);
}

/* ---- matrix products ---------------------------------------------------------------------------------------------- */

enum { OF_F32, OF_F16, OF_BF16 };
enum { MFMA, WMMA_GFX11, WMMA_GFX12 };
#define MOST_K 64

/* One wave's operand as float64 [k][row]: a lane has a row and a piece of k, which lies in consecutive registers. */
ALWAYS void matrix_of(const Kernels *k, const Waves *w, const u32 *words, int registers, int kind, int m, int pieces, double *matrix)
{
    int each = kind == OF_F32 ? 1 : 2; /* numbers a register */
    for (int r = 0; r < registers; r++, words += w->register_stride)
        for (int piece = 0; piece < pieces; piece++) {
            double *low = matrix + (piece * registers + r) * each * m, *high = low + m;
            const u32 *some = words + piece * m;
            if (kind == OF_F16)
                k->halves(some, low, high, m);
            else if (kind == OF_BF16)
                k->brains(some, low, high, m);
            else
                for (int i = 0; i < m; i++)
                    low[i] = f32_of(some[i]);
        }
}

/* Where the rows of a result begin, in words behind its first register. */
ALWAYS void place_rows(const Waves *w, int layout, int m, int *rows)
{
    int parts = w->lanes / m, registers = m / parts;
    for (int r = 0; r < registers; r++)
        for (int part = 0; part < parts; part++) {
            int row = layout == MFMA         ? 4 * parts * (r / 4) + 4 * part + r % 4
                      : layout == WMMA_GFX11 ? 2 * r + part
                                             : r + 8 * part;
            rows[row] = (int)(r * w->register_stride) + part * m;
        }
}

/* extra: layout, m, k, kind of A, of B, registers of an operand, pieces of k; C's constant is source[2]'s index. */
ALWAYS void run_matrix(const Kernels *k, Chunk *c, const Micro *micro)
{
    const i32 *e = micro->extra;
    int m = e[1], depth = e[2];
    double a[MOST_K * 32], b[MOST_K * 32];
    int rows[32];
    place_rows(c->w, e[0], m, rows);
    for (int wave = 0; wave < c->waves; wave++) {
        if (!is_live(c->w, c->first + wave))
            continue;
        Py_ssize_t at = (Py_ssize_t)wave * c->w->lanes;
        const Source *third = &micro->source[2];
        const float *before =
            third->space == VECTOR ? (const float *)(vector_register(c, third->index) + at) : NULL;
        matrix_of(k, c->w, vector_register(c, micro->source[0].index) + at, e[5], e[3], m, e[6], a);
        matrix_of(k, c->w, vector_register(c, micro->source[1].index) + at, e[5], e[4], m, e[6], b);
        k->multiply(a, b, before, f32_of((u32)third->index),
                          (float *)(vector_register(c, micro->result[0].index) + at), rows, m, depth);
    }
}

/* ---- LDS ---------------------------------------------------------------------------------------------------------- */

#include "moves.inc"
#include "known.inc"

/* ---- programs ------------------------------------------------------------------------------------------------------ */

typedef struct Run {
    int count, registers; /* registers: how many vector registers a run must have */
    u32 *tables;
    Micro *micros;
} Run;

static int is_local(const Micro *m) { return m->kind == LOCAL_LOAD || m->kind == LOCAL_STORE; }

/* Micro-operations `from` up to, and without, `until`. */
ALWAYS void execute_line(const Kernels *k, const Run *run, const Waves *w, int from, int until)
{
    Chunk c;
    c.w = w;
    int together = CHUNK / w->lanes;
    for (int first = 0; first < w->waves; first += together) {
        int waves = w->waves - first < together ? w->waves - first : together;
        if (!any_live(w, first, waves))
            continue;
        open_chunk(&c, first, waves);
        for (int i = from; i < until; i++) {
            const Micro *m = &run->micros[i];
            switch (m->kind) {
            case LANEWISE: run_lanewise(k, &c, m); break;
            case SCALAR_UNIT: run_scalar(&c, m); break;
            case READ_LANE: run_read_lane(&c, m); break;
            case MATRIX: run_matrix(k, &c, m); break;
            case PERMUTE: run_permute(&c, m); break;
            }
        }
    }
}

/* From one micro-operation on. Returns the number of one that is an access to LDS which is not known, or -1. */
ALWAYS int execute_by(const Kernels *k, const Run *run, const Waves *w, const struct Known *known, int from)
{
    while (from < run->count) {
        if (is_local(&run->micros[from])) {
            if (!run_local(known, w, &run->micros[from]))
                return from;
            from++;
            continue;
        }
        int until = from;
        while (until < run->count && !is_local(&run->micros[until]))
            until++;
        execute_line(k, run, w, from, until);
        from = until;
    }
    return -1;
}

/* ---- instruction sets of the processor --------------------------------------------------------------------------- */

/* TILE: 4 x 16 of D, of the columns of A from `left` and of the rows of B from `right` on. */
#define TILE \
    for (int r = 0; r < 4; r++) { \
        double sum[16] = {0}; \
        float total[16]; \
        for (int step = 0; step < k; step++) \
            for (int x = 0; x < 16; x++) \
                sum[x] += left[step * m + r] * right[step * m + x]; \
        for (int x = 0; x < 16; x++) \
            total[x] = (float)(sum[x] + (double)(c ? c[rows[row + r] + column + x] : addend)); \
        memcpy(d + rows[row + r] + column, total, sizeof total); \
    }
#define INSTRUCTION_SET(name) name##_everywhere
#include "operations.inc"
#undef INSTRUCTION_SET
#undef TILE

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define HAS_X86_SETS
#include <immintrin.h>

/* Products of two numbers of 24 bits are exact in float64: whether they are rounded before they are added or not, the sum
   is the same. */
#define TILE \
    for (int part = 0; part < 16; part += 8) { \
        __m256d s[4][2]; \
        for (int r = 0; r < 4; r++) \
            s[r][0] = s[r][1] = _mm256_setzero_pd(); \
        for (int step = 0; step < k; step++) { \
            __m256d b0 = _mm256_loadu_pd(right + step * m + part), b1 = _mm256_loadu_pd(right + step * m + part + 4); \
            for (int r = 0; r < 4; r++) { \
                __m256d x = _mm256_set1_pd(left[step * m + r]); \
                s[r][0] = _mm256_fmadd_pd(x, b0, s[r][0]); \
                s[r][1] = _mm256_fmadd_pd(x, b1, s[r][1]); \
            } \
        } \
        for (int r = 0; r < 4; r++) \
            for (int half = 0; half < 2; half++) { \
                int at = rows[row + r] + column + part + 4 * half; \
                __m128 before = c ? _mm_loadu_ps(c + at) : _mm_set1_ps(addend); \
                _mm_storeu_ps(d + at, _mm256_cvtpd_ps(_mm256_add_pd(s[r][half], _mm256_cvtps_pd(before)))); \
            } \
    }
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#define INSTRUCTION_SET(name) name##_avx2
#include "operations.inc"
#undef INSTRUCTION_SET
#undef TILE
#pragma GCC pop_options

#define TILE \
    { \
        __m512d s[4][2]; \
        for (int r = 0; r < 4; r++) \
            s[r][0] = s[r][1] = _mm512_setzero_pd(); \
        for (int step = 0; step < k; step++) { \
            __m512d b0 = _mm512_loadu_pd(right + step * m), b1 = _mm512_loadu_pd(right + step * m + 8); \
            for (int r = 0; r < 4; r++) { \
                __m512d x = _mm512_set1_pd(left[step * m + r]); \
                s[r][0] = _mm512_fmadd_pd(x, b0, s[r][0]); \
                s[r][1] = _mm512_fmadd_pd(x, b1, s[r][1]); \
            } \
        } \
        for (int r = 0; r < 4; r++) \
            for (int half = 0; half < 2; half++) { \
                int at = rows[row + r] + column + 8 * half; \
                __m256 before = c ? _mm256_loadu_ps(c + at) : _mm256_set1_ps(addend); \
                _mm256_storeu_ps(d + at, _mm512_cvtpd_ps(_mm512_add_pd(s[r][half], _mm512_cvtps_pd(before)))); \
            } \
    }
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt,prefer-vector-width=512")
#define INSTRUCTION_SET(name) name##_avx512
#include "operations.inc"
#undef INSTRUCTION_SET
#undef TILE
#pragma GCC pop_options
#endif

/* What this processor can execute, the best first. */
typedef struct { const char *name; const Kernels *kernels; } InstructionSet;
static InstructionSet instruction_sets[3];
static int instruction_set_count;
static const Kernels *kernels;

static void add_set(const char *name, const Kernels *some)
{
    instruction_sets[instruction_set_count++] = (InstructionSet){name, some};
}

static void find_instruction_sets(void)
{
    instruction_set_count = 0;
#ifdef HAS_X86_SETS
    __builtin_cpu_init();
    int has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        add_set("avx512", &kernels_avx512);
    if (has_avx2)
        add_set("avx2", &kernels_avx2);
#endif
    add_set("everywhere", &kernels_everywhere);
    kernels = instruction_sets[0].kernels;
}

/* ---- the module ---------------------------------------------------------------------------------------------------- */

static const char capsule_name[] = "gfxlab.simulator.compiled.run";

static void free_run(PyObject *capsule)
{
    Run *run = PyCapsule_GetPointer(capsule, capsule_name);
    if (run) {
        free(run->tables);
        free(run->micros);
        free(run);
    }
}

static void *copy_of(const Py_buffer *buffer)
{
    size_t size = (size_t)buffer->len;
    void *copy = malloc(size ? size : 1);
    return copy ? memcpy(copy, buffer->buf, size) : NULL;
}

static PyObject *make(PyObject *self, PyObject *args)
{
    Py_buffer micros, tables;
    int registers;
    if (!PyArg_ParseTuple(args, "y*y*i", &micros, &tables, &registers))
        return NULL;
    Run *run = calloc(1, sizeof *run);
    PyObject *result = NULL;
    if (run) {
        run->count = (int)(micros.len / (Py_ssize_t)sizeof(Micro));
        run->registers = registers;
        run->micros = copy_of(&micros);
        run->tables = copy_of(&tables);
    }
    if (!run || !run->micros || !run->tables)
        PyErr_NoMemory();
    else if (micros.len % (Py_ssize_t)sizeof(Micro))
        PyErr_Format(PyExc_ValueError, "a micro-operation has %zu bytes", sizeof(Micro));
    else
        result = PyCapsule_New(run, capsule_name, free_run);
    if (!result && run) {
        free(run->tables);
        free(run->micros);
        free(run);
    }
    PyBuffer_Release(&micros);
    PyBuffer_Release(&tables);
    return result;
}

static int take(PyObject *object, Py_buffer *buffer, int flags, int dimensions, const char *name)
{
    if (PyObject_GetBuffer(object, buffer, flags | PyBUF_STRIDES))
        return 0;
    if (buffer->ndim == dimensions)
        return 1;
    PyErr_Format(PyExc_ValueError, "%s must have %d dimensions, has %d", name, dimensions, buffer->ndim);
    PyBuffer_Release(buffer);
    return 0;
}

static const char *odd_shape(const Run *run, const Py_buffer *v, const Py_buffer *s, const Py_buffer *mask)
{
    if (v->shape[0] < run->registers)
        return "there are too few vector registers";
    if (v->shape[1] && v->shape[2] != 32 && v->shape[2] != 64)
        return "a wave has 32 or 64 lanes";
    if (v->itemsize != 4 || s->itemsize != 4 || v->strides[2] != 4 || v->strides[1] != 4 * v->shape[2] ||
        s->strides[1] != 4 || v->strides[0] % 4 || s->strides[0] % 4)
        return "registers must be words, those of a wave side by side";
    if (s->shape[0] != v->shape[1])
        return "there are not as many scalar registers as waves";
    if (mask && (mask->shape[0] != v->shape[1] || mask->shape[1] != v->shape[2] || mask->strides[1] != 1))
        return "the mask must have a byte for each lane";
    return NULL;
}

static PyObject *run(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 9) {
        PyErr_SetString(PyExc_TypeError, "run takes a run, V, S, SCC, a mask, which waves live, what is known of LDS, "
                                         "the first wave's number and where to begin");
        return NULL;
    }
    const Run *program = PyCapsule_GetPointer(args[0], capsule_name);
    const Known *known = args[6] == Py_None ? NULL : PyCapsule_GetPointer(args[6], known_name);
    Py_ssize_t first = PyLong_AsSsize_t(args[7]), from = PyLong_AsSsize_t(args[8]);
    if (PyErr_Occurred())
        return NULL;
    Py_buffer v, s, scc, mask, live;
    int has_mask = args[4] != Py_None, has_live = args[5] != Py_None, done = 0, stopped = -1;
    if (!program || !take(args[1], &v, PyBUF_WRITABLE, 3, "V"))
        return NULL;
    if (!take(args[2], &s, PyBUF_WRITABLE, 2, "S"))
        goto release_v;
    if (!take(args[3], &scc, PyBUF_WRITABLE, 1, "SCC"))
        goto release_s;
    if (has_mask && !take(args[4], &mask, PyBUF_SIMPLE, 2, "the mask"))
        goto release_scc;
    if (has_live && !take(args[5], &live, PyBUF_SIMPLE, 1, "live"))
        goto release_mask;
    const char *odd = odd_shape(program, &v, &s, has_mask ? &mask : NULL);
    if (odd || from < 0 || first < 0) {
        PyErr_SetString(PyExc_ValueError, odd ? odd : "waves and micro-operations count from 0");
    } else {
        Waves w = {
            .V = v.buf, .S = s.buf, .scc = scc.buf,
            .mask = has_mask ? mask.buf : NULL, .live = has_live ? live.buf : NULL,
            .register_stride = v.strides[0] / 4, .scalar_stride = s.strides[0] / 4, .scc_stride = scc.strides[0],
            .mask_stride = has_mask ? mask.strides[0] : 0, .live_stride = has_live ? live.strides[0] : 0,
            .first = first, .waves = (int)v.shape[1], .lanes = (int)v.shape[2], .tables = program->tables,
        };
        stopped = kernels->execute(program, &w, known, (int)from);
        done = 1;
    }
    if (has_live)
        PyBuffer_Release(&live);
release_mask:
    if (has_mask)
        PyBuffer_Release(&mask);
release_scc:
    PyBuffer_Release(&scc);
release_s:
    PyBuffer_Release(&s);
release_v:
    PyBuffer_Release(&v);
    return done ? PyLong_FromLong(stopped) : NULL;
}

#include "memory.inc"

/* choose(name): go on with an instruction set of INSTRUCTION_SETS. */
static PyObject *choose(PyObject *self, PyObject *name)
{
    const char *wanted = PyUnicode_AsUTF8(name);
    for (int i = 0; wanted && i < instruction_set_count; i++)
        if (!strcmp(wanted, instruction_sets[i].name)) {
            kernels = instruction_sets[i].kernels;
            Py_RETURN_NONE;
        }
    if (wanted)
        PyErr_Format(PyExc_ValueError, "this processor has no instruction set \"%s\"", wanted);
    return NULL;
}

static PyMethodDef methods[] = {
    {"make", make, METH_VARARGS, "A run of these micro-operations, with tables of lanes, for so many registers."},
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, "Execute a run on V, S, SCC; -1, or where it has to stop."},
    {"known", make_known, METH_VARARGS, "Accesses to these bytes of LDS of which it is known what they do to these states."},
    {"teach", teach_known, METH_VARARGS, "What an access does to a state."},
    {"choose", choose, METH_O, "Go on with one of INSTRUCTION_SETS; the first is used unless told otherwise."},
    {"load", load, METH_VARARGS, "Bytes to registers."},
    {"store", store, METH_VARARGS, "Registers to bytes."},
    {"common_bits", common_bits, METH_VARARGS, "The bits that the offset of some lane has that is on."},
    {"claim", claim, METH_VARARGS, "Writes each wave's number into the cells of its lanes, if nobody else's is there."},
    {"bounds", bounds, METH_VARARGS, "The lowest and the highest address of the lanes that are on."},
    {"buffer_address", buffer_address, METH_VARARGS, "The addresses of an access through a resource."},
    {"repeats", repeats, METH_VARARGS, "Whether a register holds one pattern over and over."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "lanes", NULL, -1, methods, NULL, NULL, NULL, NULL};

static int add_names(PyObject *module, const char *name, const char *const *names, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++)
        PyTuple_SET_ITEM(tuple, i, PyUnicode_FromString(names[i]));
    return tuple ? PyModule_AddObject(module, name, tuple) : -1;
}

PyMODINIT_FUNC PyInit_lanes(void)
{
    const char *sets[sizeof instruction_sets / sizeof *instruction_sets];
    find_instruction_sets();
    for (int i = 0; i < instruction_set_count; i++)
        sets[i] = instruction_sets[i].name;
    PyObject *module = PyModule_Create(&definition);
    if (!module || add_names(module, "OPERATIONS", operation_names, OPERATIONS) ||
        add_names(module, "SCALAR_OPERATIONS", scalar_names, SCALAR_OPERATIONS) ||
        add_names(module, "INSTRUCTION_SETS", sets, instruction_set_count) ||
        PyModule_AddStringConstant(module, "STAMP", GFXLAB_STAMP))
        return NULL;
    return module;
}
