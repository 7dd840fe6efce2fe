/* ptx_instructions.h: statements that are one instruction: barriers, vectors, copies, matrices. Part of
 * ptx_compile.c. */
#ifndef VB_PTX_INSTRUCTIONS_H
#define VB_PTX_INSTRUCTIONS_H

#include "ptx_values.h"

/* count registers of an array, as an argument of an instruction. */
static value registers(compiler *c, int count, kind k) {
    char text[NAME];
    identifier(c, text);
    const name *n = find(c, text);
    int have;
    if (!n || n->what != REGISTERS) fail(c, "%s is no array of registers", text);
    const value v = register_element(c, n, &have);
    if (have != count || v.kind != k) fail(c, "want %d registers of %s in %s", count, kinds[k].name, text);
    return v;
}

static operand list_of(compiler *c, value first, int count) {
    operand o;
    size_t used = 0;
    char text[sizeof o.text] = "";
    for (int i = 0; i < count && used < sizeof text; i++, first.reg++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? ", " : "", OP(first));
    if (used >= sizeof text) fail(c, "too many registers");
    memcpy(o.text, text, sizeof text);
    return o;
}

#define LIST(v, count) list_of(c, v, count).text

static address memory(compiler *c) {
    char text[NAME];
    identifier(c, text);
    const name *n = find(c, text);
    if (!n) fail(c, "unknown name %s", text);
    return place_of(c, n);
}

/* The halves of `count` words as f32. */
static void unpack(compiler *c, value to, value pair, int count, kind k) {
    for (; count > 0; count--, pair.reg++, to.reg += 2) {
        value next = to;
        next.reg++;
        if (k == F16) {
            const int h = c->halves;
            c->halves += 2;
            emit(c, "mov.b32 {%%h%d, %%h%d}, %s", h, h + 1, OP(pair));
            emit(c, "cvt.f32.f16 %s, %%h%d", OP(to), h);
            emit(c, "cvt.f32.f16 %s, %%h%d", OP(next), h + 1);
        } else {
            const value low = fresh(c, U32), high = fresh(c, U32);
            emit(c, "shl.b32 %s, %s, 16", OP(low), OP(pair));
            emit(c, "and.b32 %s, %s, %d", OP(high), OP(pair), (int)0xffff0000);
            emit(c, "mov.b32 %s, %s", OP(to), OP(low));
            emit(c, "mov.b32 %s, %s", OP(next), OP(high));
        }
    }
}

static void pack(compiler *c, value pair, value from, int count, kind k) {
    for (; count > 0; count--, pair.reg++, from.reg += 2) {
        value next = from;
        next.reg++;
        if (c->target >= 80) {
            emit(c, "cvt.rn.%s.f32 %s, %s, %s", k == F16 ? "f16x2" : "bf16x2", OP(pair), OP(next), OP(from));
        } else if (k == F16) {
            const int h = c->halves;
            c->halves += 2;
            emit(c, "cvt.rn.f16.f32 %%h%d, %s", h, OP(from));
            emit(c, "cvt.rn.f16.f32 %%h%d, %s", h + 1, OP(next));
            emit(c, "mov.b32 %s, {%%h%d, %%h%d}", OP(pair), h, h + 1);
        } else {
            const value low = bf16_bits(c, from), high = bf16_bits(c, next);
            emit(c, "shl.b32 %s, %s, 16", OP(high), OP(high));
            emit(c, "or.b32 %s, %s, %s", OP(pair), OP(low), OP(high));
        }
    }
}

/* An array of registers from or to memory as one access of 8 or 16 bytes. Elements of 16 bits are converted from and to
 * an array of f32; an array of u32 has two of them a word. `how` tells of memory that nothing writes while the kernel
 * runs: it is read before stores that come first in the text, too. */
static void vector(compiler *c, bool loads, const char *how) {
    char text[NAME];
    address a;
    if (!loads) a = memory(c), expect(c, ",");
    identifier(c, text);
    const name *n = find(c, text);
    int count;
    if (!n || n->what != REGISTERS) fail(c, "%s is no array of registers", text);
    value v = register_element(c, n, &count);
    if (loads) expect(c, ","), a = memory(c);
    const bool small = a.kind == F16 || a.kind == BF16, halves = small && v.kind == F32;
    const bool alike = kinds[a.kind].bytes == 4 && kinds[v.kind].bytes == 4;
    const value elements = v;
    const int words = halves ? count / 2 : count;
    if ((words != 2 && words != 4) || (halves && count % 2)) fail(c, "%s has %d elements", text, count);
    if (!small && !alike) fail(c, "vectors are of elements of 4 bytes, f16 or bf16");
    if (small && v.kind != F32 && v.kind != U32) fail(c, "%s becomes f32, or two u32", kinds[a.kind].name);
    if (how[0] && a.shared) fail(c, "shared memory is read by load");
    if (halves) {
        v = fresh(c, U32);
        c->registers[U32] += words - 1;
        if (!loads) pack(c, v, elements, words, a.kind);
    }
    if (loads)
        emit(c, "ld.%s%s.v%d.b32 {%s}, [%s]", space(a), how, words, LIST(v, words),
             a.text);
    else
        emit(c, "st.%s.v%d.b32 [%s], {%s}", space(a), words, a.text, LIST(v, words));
    if (loads && halves) unpack(c, elements, v, words, a.kind);
}

/* Where a block of the cluster has what this block has at an address of shared memory. */
static value in_rank(compiler *c, address a, value rank) {
    const value here = fresh(c, U32), there = fresh(c, U32);
    if (!a.shared) fail(c, "a cluster shares shared memory");
    const int base = (int)strcspn(a.text, "+");
    emit(c, "mov.u32 %s, %.*s", OP(here), base, a.text);
    emit(c, "add.u32 %s, %s, %s", OP(here), OP(here), a.text + base + 1);
    emit(c, "mapa.shared::cluster.u32 %s, %s, %s", OP(there), OP(here), OP(rank));
    return there;
}

static bool instruction(compiler *c, const char *f) {
    if (!strcmp(f, "atomic_add")) { /* atomic_add(p[i], v): of f32, s32 or u32 */
        const address a = memory(c);
        if (a.kind != F32 && a.kind != S32 && a.kind != U32) fail(c, "%s is not added", kinds[a.kind].name);
        expect(c, ",");
        const value v = in_register(c, as(c, expression(c), a.kind));
        emit(c, "red.%s.add.%s [%s], %s", space(a), kinds[a.kind].move, a.text, OP(v));
    } else if (!strcmp(f, "barrier")) {
        emit(c, "bar.sync 0");
    } else if (!strcmp(f, "wait_for_previous")) { /* from 9.0 on the next kernel may begin while this one runs: */
        if (c->target >= 90) emit(c, "griddepcontrol.wait");
    } else if (!strcmp(f, "start_next")) { /* what the kernel before wrote is seen after the wait */
        if (c->target >= 90) emit(c, "griddepcontrol.launch_dependents");
    } else if (!strcmp(f, "load")) {
        vector(c, true, "");
    } else if (!strcmp(f, "load_once")) {
        vector(c, true, ".nc.L1::no_allocate");
    } else if (!strcmp(f, "load_fixed")) {
        vector(c, true, ".nc");
    } else if (!strcmp(f, "store")) {
        vector(c, false, "");
    } else if (!strcmp(f, "mma_f16") || !strcmp(f, "mma_bf16")) { /* d[4] += a[16][16] b[16][8], d in f32 */
        const value d = registers(c, 4, F32);
        expect(c, ",");
        const value a = registers(c, 4, U32);
        expect(c, ",");
        const value b = registers(c, 2, U32);
        const operand dl = list_of(c, d, 4), al = list_of(c, a, 4), bl = list_of(c, b, 2);
        emit(c, "mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 {%s}, {%s}, {%s}, {%s}", f + 4, f + 4, dl.text,
             al.text, bl.text, dl.text);
    } else if (!strcmp(f, "wmma_load_a") || !strcmp(f, "wmma_load_b")) {
        /* 16 x 16 of halves, rows of so many elements */
        const value r = registers(c, 8, U32);
        expect(c, ",");
        const address a = memory(c);
        expect(c, ",");
        const int64_t row = constant(c, "the length of a row");
        emit(c, "wmma.load.%c.sync.aligned.row.m16n16k16.shared.f16 {%s}, [%s], %lld", f[10], LIST(r, 8), a.text,
             (long long)row);
    } else if (!strcmp(f, "wmma_f16")) { /* d[16][16] += a b, d in f32 */
        const value d = registers(c, 8, F32);
        expect(c, ",");
        const value a = registers(c, 8, U32);
        expect(c, ",");
        const value b = registers(c, 8, U32);
        const operand dl = list_of(c, d, 8), al = list_of(c, a, 8), bl = list_of(c, b, 8);
        emit(c, "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%s}, {%s}, {%s}, {%s}", dl.text, al.text, bl.text,
             dl.text);
    } else if (!strcmp(f, "wmma_store")) {
        const address a = memory(c);
        expect(c, ",");
        const value d = registers(c, 8, F32);
        expect(c, ",");
        const int64_t row = constant(c, "the length of a row");
        emit(c, "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%s], {%s}, %lld", a.text, LIST(d, 8),
             (long long)row);
    } else if (!strcmp(f, "load_matrices") || !strcmp(f, "load_matrices_transposed")) { /* four 8 x 8 of halves */
        const value r = registers(c, 4, U32);
        expect(c, ",");
        const address a = memory(c);
        emit(c, "ldmatrix.sync.aligned.m8n8.x4.%sshared.b16 {%s}, [%s]", strlen(f) > 13 ? "trans." : "", LIST(r, 4),
             a.text);
    } else if (!strcmp(f, "copy_async")) {
        /* 16 bytes from global to shared memory; the third is how many are read, or whether they are; zeros follow */
        const address to = memory(c);
        expect(c, ",");
        const address from = memory(c);
        expect(c, ",");
        const value valid = expression(c);
        value bytes = integer(16);
        if (valid.kind == U32 && valid.form != CONSTANT) {
            bytes = valid;
        } else if (valid.form != CONSTANT) {
            bytes = fresh(c, U32);
            emit(c, "selp.u32 %s, 16, 0, %s", OP(bytes), OP(valid));
        }
        emit(c, "cp.async.cg.shared.global [%s], [%s], 16, %s", to.text, from.text, OP(bytes));
    } else if (!strcmp(f, "copy_async_commit")) {
        emit(c, "cp.async.commit_group");
    } else if (!strcmp(f, "copy_async_wait")) {
        emit(c, "cp.async.wait_group %lld", (long long)constant(c, "the number of groups"));
    } else if (!strcmp(f, "barrier_init")) { /* a barrier in shared memory, for 9.0: so many arrive in each phase */
        const address a = memory(c);
        expect(c, ",");
        emit(c, "mbarrier.init.shared.b64 [%s], %lld", a.text, (long long)constant(c, "how many arrive"));
    } else if (!strcmp(f, "barrier_arrive")) {
        const address a = memory(c);
        emit(c, "mbarrier.arrive.shared.b64 %s, [%s]", OP(fresh(c, U64)), a.text);
    } else if (!strcmp(f, "barrier_expect")) { /* arrives; the phase ends after so many bytes of store_in_rank, too */
        const address a = memory(c);
        expect(c, ",");
        emit(c, "mbarrier.arrive.expect_tx.shared.b64 %s, [%s], %lld", OP(fresh(c, U64)), a.text,
             (long long)constant(c, "the number of bytes"));
    } else if (!strcmp(f, "barrier_wait")) { /* for the end of a phase whose number is odd or even */
        const address a = memory(c);
        expect(c, ",");
        const value parity = in_register(c, as(c, expression(c), U32)), ended = fresh(c, BOOL);
        const int again = c->labels++;
        emit(c, "$L%d", again);
        emit(c, "mbarrier.try_wait.parity.shared.b64 %s, [%s], %s", OP(ended), a.text, OP(parity));
        emit(c, "@!%s bra $L%d", OP(ended), again);
    } else if (!strcmp(f, "cluster_barrier")) {
        emit(c, "barrier.cluster.arrive");
        emit(c, "barrier.cluster.wait");
    } else if (!strcmp(f, "store_in_rank")) {
        /* two f32 to the place that another block of the cluster has for them, and 8 bytes to its barrier */
        const address to = memory(c);
        expect(c, ",");
        const value pair = registers(c, 2, F32);
        expect(c, ",");
        const address barrier = memory(c);
        expect(c, ",");
        const value rank = in_register(c, as(c, expression(c), U32)), there = in_rank(c, to, rank);
        const value told = in_rank(c, barrier, rank);
        emit(c, "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%s], {%s}, [%s]", OP(there),
             LIST(pair, 2), OP(told));
        if (c->version < 81) c->version = 81;
    } else {
        return false;
    }
    return true;
}

#endif
