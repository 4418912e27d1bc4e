/* CRC-32 of IEEE 802.3, as zlib computes it.
 *
 * Ways to the same number, one of which is chosen when the module is loaded: carry-less multiplication on x86
 * (PCLMULQDQ, and four at once with VPCLMULQDQ), the CRC instructions of ARMv8, and tables. The folding is that of Gopal et al.,
 * "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009). */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Slicing by eight: table t gives what a byte does to the register t bytes later. */
static uint32_t crc_table[8][256];

static void crc32_init_tables(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
        crc_table[0][n] = c;
    }
    for (int t = 1; t < 8; t++)
        for (uint32_t n = 0; n < 256; n++)
            crc_table[t][n] = crc_table[t - 1][n] >> 8 ^ crc_table[0][crc_table[t - 1][n] & 0xFF];
}

static uint32_t crc32_by_tables(uint32_t crc, const uint8_t *p, size_t length) {
    for (; length >= 8; p += 8, length -= 8) {
        crc ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        crc = crc_table[7][crc & 0xFF] ^ crc_table[6][crc >> 8 & 0xFF] ^ crc_table[5][crc >> 16 & 0xFF] ^
              crc_table[4][crc >> 24] ^ crc_table[3][p[4]] ^ crc_table[2][p[5]] ^ crc_table[1][p[6]] ^ crc_table[0][p[7]];
    }
    while (length--) crc = crc >> 8 ^ crc_table[0][(crc ^ *p++) & 0xFF];
    return crc;
}

typedef uint32_t (*Crc32)(uint32_t crc, const uint8_t *p, size_t length);

static Crc32 crc32_continue = crc32_by_tables;
static const char *crc32_way = "tables";

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define CLMUL __attribute__((target("pclmul,sse4.1")))

/* Shuffles that move a register by n bytes, read n bytes after the start: to the left of the middle towards one end,
 * to the right of it towards the other. A byte with the top bit set gives zero. */
static const uint8_t crc_shift[48] = {
    0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
    0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};

CLMUL static inline __m128i crc_fold(__m128i x, __m128i next, __m128i k) {
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), next);
}

CLMUL static inline __m128i crc_load(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }

/* Return the checksum of what is folded into ``x`` and of the bytes after it. */
CLMUL static inline uint32_t crc_finish(__m128i x, const uint8_t *p, size_t length) {
    const __m128i by_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0), low = _mm_setr_epi32(-1, 0, -1, 0);
    const __m128i by_8 = _mm_set_epi64x(0, 0x163cd6124), barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    for (; length >= 16; p += 16, length -= 16) x = crc_fold(x, crc_load(p), by_16);
    if (length) {
        /* The last bytes come in at one end; what they push out at the other is folded over them. */
        __m128i out = _mm_shuffle_epi8(x, crc_load(crc_shift + length));
        __m128i stay = _mm_shuffle_epi8(x, crc_load(crc_shift + 16 + length));
        __m128i last = _mm_blendv_epi8(stay, crc_load(p + length - 16), crc_load(crc_shift + 16 + length));
        x = crc_fold(out, last, by_16);
    }
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, by_16, 0x10));
    x = _mm_xor_si128(_mm_srli_si128(x, 4), _mm_clmulepi64_si128(_mm_and_si128(x, low), by_8, 0x00));
    __m128i q = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(x, low), barrett, 0x10), low);
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(q, barrett, 0x00));
    return (uint32_t)_mm_extract_epi32(x, 1);
}

CLMUL static uint32_t crc32_by_clmul(uint32_t crc, const uint8_t *p, size_t length) {
    if (length < 16) return crc32_by_tables(crc, p, length);
    /* The constants are powers of x modulo the polynomial, bit-reflected: by_64 folds over 64 bytes, and so on. */
    const __m128i by_64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4), by_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i x = _mm_xor_si128(crc_load(p), _mm_cvtsi32_si128((int)crc));
    p += 16, length -= 16;
    if (length >= 48) {
        /* Four registers at once: a multiplication takes longer than the wait between two of them. */
        __m128i y = crc_load(p), z = crc_load(p + 16), w = crc_load(p + 32);
        for (p += 48, length -= 48; length >= 64; p += 64, length -= 64) {
            x = crc_fold(x, crc_load(p), by_64), y = crc_fold(y, crc_load(p + 16), by_64);
            z = crc_fold(z, crc_load(p + 32), by_64), w = crc_fold(w, crc_load(p + 48), by_64);
        }
        x = crc_fold(crc_fold(crc_fold(x, y, by_16), z, by_16), w, by_16);
    }
    return crc_finish(x, p, length);
}

/* The same with registers of 64 bytes, where the processor has them. */
#define WIDE __attribute__((target("vpclmulqdq,avx512f,pclmul,sse4.1")))

WIDE static inline __m512i crc_fold_wide(__m512i x, __m512i next, __m512i k) {
    enum { XOR_OF_THREE = 0x96 };
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00), _mm512_clmulepi64_epi128(x, k, 0x11), next,
                                     XOR_OF_THREE);
}

WIDE static uint32_t crc32_by_wide_clmul(uint32_t crc, const uint8_t *p, size_t length) {
    if (length < 256) return crc32_by_clmul(crc, p, length);
    const __m512i by_256 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x1322d1430, 0x11542778a));
    const __m512i by_64 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x1c6e41596, 0x154442bd4));
    const __m128i by_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m512i x = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    __m512i y = _mm512_loadu_si512(p + 64), z = _mm512_loadu_si512(p + 128), w = _mm512_loadu_si512(p + 192);
    for (p += 256, length -= 256; length >= 256; p += 256, length -= 256) {
        x = crc_fold_wide(x, _mm512_loadu_si512(p), by_256), y = crc_fold_wide(y, _mm512_loadu_si512(p + 64), by_256);
        z = crc_fold_wide(z, _mm512_loadu_si512(p + 128), by_256), w = crc_fold_wide(w, _mm512_loadu_si512(p + 192), by_256);
    }
    x = crc_fold_wide(crc_fold_wide(crc_fold_wide(x, y, by_64), z, by_64), w, by_64);
    for (; length >= 64; p += 64, length -= 64) x = crc_fold_wide(x, _mm512_loadu_si512(p), by_64);
    __m128i first = crc_fold(_mm512_castsi512_si128(x), _mm512_extracti32x4_epi32(x, 1), by_16);
    first = crc_fold(first, _mm512_extracti32x4_epi32(x, 2), by_16);
    return crc_finish(crc_fold(first, _mm512_extracti32x4_epi32(x, 3), by_16), p, length);
}

static void crc32_choose(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
        crc32_continue = crc32_by_clmul;
        crc32_way = "PCLMUL";
        if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f")) {
            crc32_continue = crc32_by_wide_clmul;
            crc32_way = "VPCLMUL";
        }
    }
}

#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#if defined(__clang__)
#define ARM_CRC __attribute__((target("crc")))
#else
#define ARM_CRC __attribute__((target("+crc")))
#endif
#include <arm_acle.h>

ARM_CRC static uint32_t crc32_by_instruction(uint32_t crc, const uint8_t *p, size_t length) {
    for (uint64_t word; length >= 8; p += 8, length -= 8) memcpy(&word, p, 8), crc = __crc32d(crc, word);
    while (length--) crc = __crc32b(crc, *p++);
    return crc;
}

static void crc32_choose(void) {
#if defined(__linux__)
    enum { HAS_CRC32 = 1 << 7 }; /* HWCAP_CRC32 of asm/hwcap.h */
    int has_it = (getauxval(AT_HWCAP) & HAS_CRC32) != 0;
#else
    int has_it = 1; /* every 64-bit ARM of Apple has it */
#endif
    if (has_it) {
        crc32_continue = crc32_by_instruction;
        crc32_way = "ARM CRC32";
    }
}

#else
static void crc32_choose(void) {}
#endif

static void crc32_init(void) {
    crc32_init_tables();
    crc32_choose();
}

static inline uint32_t crc32_of(const uint8_t *p, size_t length) { return ~crc32_continue(~0u, p, length); }

/* The checksum that records hold: 31 bits of it. */
static inline uint32_t crc31_of(const uint8_t *p, size_t length) { return crc32_of(p, length) & 0x7FFFFFFFu; }
