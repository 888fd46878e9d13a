// CPU kernels of the history operators: OpenMP over positions or columns, AVX2 where the machine has it.
//
// Plain C functions without a torch header: the library builds in seconds, fits every torch release,
// and is called through ctypes. Shapes, types and contiguity are the caller's promise (native.py).

#include <algorithm>
#include <cstdint>

#include "history.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define REMASK_AVX2 1
#endif

using namespace remask;

namespace {

// Columns handled at once. Table, weight and output slices of this width stay in the first-level
// cache, so a long horizon's larger table costs no more than a short one's.
constexpr int64_t kTile = 256;
constexpr int64_t kPositionsPerTask = 64;

#ifdef REMASK_AVX2
inline __m256 load8(const float* p) { return _mm256_loadu_ps(p); }
inline __m256 load8(const BFloat16* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
// Four complex products, components interleaved.
inline __m256 times8(__m256 c, __m256 x) {
  const __m256 swapped = _mm256_mul_ps(_mm256_movehdup_ps(c), _mm256_permute_ps(x, 0xB1));
  return _mm256_fmaddsub_ps(_mm256_moveldup_ps(c), x, swapped);
}
inline __m256 conj_times8(__m256 c, __m256 g) {
  const __m256 swapped = _mm256_mul_ps(_mm256_movehdup_ps(c), _mm256_permute_ps(g, 0xB1));
  return _mm256_fmsubadd_ps(_mm256_moveldup_ps(c), g, swapped);
}
#endif

template <class acc_t, class T>
inline Pair<acc_t> load_pair(const T* p) {
  return {static_cast<acc_t>(to_acc(p[0])), static_cast<acc_t>(to_acc(p[1]))};
}

template <class weight_t, class acc_t>
void step_row(const acc_t* acc, const weight_t* embed, const acc_t* turn, acc_t* out,
              int64_t width) {
  int64_t d = 0;
#ifdef REMASK_AVX2
  if constexpr (sizeof(acc_t) == 4) {
    for (; d + 8 <= width; d += 8) {
      const __m256 past = times8(load8(turn + d), load8(acc + d));
      _mm256_storeu_ps(out + d, _mm256_add_ps(load8(embed + d), past));
    }
  }
#endif
  for (; d < width; d += 2) {
    const Pair<acc_t> sum = load_pair<acc_t>(embed + d) +
                            load_pair<acc_t>(turn + d) * load_pair<acc_t>(acc + d);
    out[d] = sum.re;
    out[d + 1] = sum.im;
  }
}

template <class weight_t, class acc_t>
void step_all(const acc_t* acc, const weight_t* embed, const acc_t* turn, acc_t* out, int64_t rows,
              int64_t width, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < rows; ++r)
    step_row(acc + r * width, embed + r * width, turn, out + r * width, width);
}

// Pieces summed at once, in registers; more of them take several rounds.
constexpr int kPieces = 4;

// The columns of a tile that the pieces of one position need, newest piece first.
template <class weight_t, class acc_t>
struct Terms {
  const weight_t* weight[kPieces];
  const acc_t* oldest[kPieces];     // C[oldest] of each piece
  const acc_t* newest = nullptr;  // C[newest] of the first one; null for C[0] = 0
  int count = 0;
};

// out[0:width] (+)= sum over kCount terms of (C[oldest] - C[newest]) * weight, where each term's
// newest is the oldest of the one before it.
template <int kCount, bool kAdd, class weight_t, class acc_t>
void sum_terms(const Terms<weight_t, acc_t>& terms, acc_t* out, int64_t width) {
  int64_t d = 0;
#ifdef REMASK_AVX2
  if constexpr (sizeof(acc_t) == 4) {
    for (; d + 8 <= width; d += 8) {
      __m256 sum, newest;
      if constexpr (kAdd) {
        sum = load8(out + d);
        newest = load8(terms.newest + d);
      }
      for (int s = 0; s < kCount; ++s) {
        const bool first = s == 0 && !kAdd;
        const __m256 oldest = load8(terms.oldest[s] + d);
        const __m256 c = first ? oldest : _mm256_sub_ps(oldest, newest);
        const __m256 term = times8(c, load8(terms.weight[s] + d));
        sum = first ? term : _mm256_add_ps(sum, term);
        newest = oldest;
      }
      _mm256_storeu_ps(out + d, sum);
    }
  }
#endif
  for (; d < width; d += 2) {
    Pair<acc_t> sum{0, 0}, newest{0, 0};
    if constexpr (kAdd) {
      sum = load_pair<acc_t>(out + d);
      newest = load_pair<acc_t>(terms.newest + d);
    }
    for (int s = 0; s < kCount; ++s) {
      const Pair<acc_t> oldest = load_pair<acc_t>(terms.oldest[s] + d);
      sum = sum + (oldest - newest) * load_pair<acc_t>(terms.weight[s] + d);
      newest = oldest;
    }
    out[d] = sum.re;
    out[d + 1] = sum.im;
  }
}

template <bool kAdd, class weight_t, class acc_t>
void sum_any(const Terms<weight_t, acc_t>& terms, acc_t* out, int64_t width) {
  static_assert(kPieces == 4, "a case for each number of pieces");
  switch (terms.count) {
    case 1:
      return sum_terms<1, kAdd>(terms, out, width);
    case 2:
      return sum_terms<2, kAdd>(terms, out, width);
    case 3:
      return sum_terms<3, kAdd>(terms, out, width);
    case 4:
      return sum_terms<4, kAdd>(terms, out, width);
  }
}

// Columns `column` to `column + columns` of a^(t) at position i, to out[0:columns].
template <class weight_t, class acc_t>
void embed_position(const weight_t* weight, const Segments& segments, const acc_t* table,
                    acc_t* out, int64_t i, int64_t width, int64_t column, int64_t columns) {
  Terms<weight_t, acc_t> terms;
  Pieces pieces(segments, i);
  for (Piece piece; pieces.next(piece);) {
    if (terms.count == kPieces) {
      if (terms.newest)
        sum_any<true>(terms, out, columns);
      else
        sum_any<false>(terms, out, columns);
      terms.newest = terms.oldest[kPieces - 1];
      terms.count = 0;
    }
    terms.weight[terms.count] = weight + piece.token * width + column;
    terms.oldest[terms.count++] = table + piece.oldest * width + column;
  }
  if (terms.newest)
    sum_any<true>(terms, out, columns);
  else
    sum_any<false>(terms, out, columns);
}

template <class weight_t, class acc_t>
void embed_all(const weight_t* weight, const Segments& segments, const acc_t* table, acc_t* out,
               int64_t width, int threads) {
  const int64_t tiles = (width + kTile - 1) / kTile;
  const int64_t tasks = (segments.total + kPositionsPerTask - 1) / kPositionsPerTask;
#pragma omp parallel for num_threads(threads) schedule(static) collapse(2)
  for (int64_t tile = 0; tile < tiles; ++tile) {
    for (int64_t task = 0; task < tasks; ++task) {
      const int64_t column = tile * kTile;
      const int64_t columns = std::min(kTile, width - column);
      const int64_t end = std::min(segments.total, (task + 1) * kPositionsPerTask);
      for (int64_t i = task * kPositionsPerTask; i < end; ++i)
        embed_position(weight, segments, table, out + i * width + column, i, width, column,
                       columns);
    }
  }
}

// to[0:width] += conj(C[oldest] - C[newest]) * grad; `newest` may be null, for C[0] = 0.
template <class acc_t>
void add_slice(const acc_t* grad, const acc_t* oldest, const acc_t* newest, acc_t* to,
               int64_t width) {
  int64_t d = 0;
#ifdef REMASK_AVX2
  if constexpr (sizeof(acc_t) == 4) {
    for (; d + 8 <= width; d += 8) {
      __m256 c = load8(oldest + d);
      if (newest) c = _mm256_sub_ps(c, load8(newest + d));
      _mm256_storeu_ps(to + d, _mm256_add_ps(load8(to + d), conj_times8(c, load8(grad + d))));
    }
  }
#endif
  for (; d < width; d += 2) {
    Pair<acc_t> c = load_pair<acc_t>(oldest + d);
    if (newest) c = c - load_pair<acc_t>(newest + d);
    const Pair<acc_t> sum =
        load_pair<acc_t>(to + d) + conj_times(c, load_pair<acc_t>(grad + d));
    to[d] = sum.re;
    to[d + 1] = sum.im;
  }
}

// Threads own columns, not positions: no two write the same element, so there are no atomics and
// the order of each sum, hence its bits, is the same for any number of threads.
template <class acc_t>
void backward_all(const acc_t* grad, const Segments& segments, const acc_t* table,
                  acc_t* grad_weight, int64_t width, int threads) {
  constexpr int64_t kLine = 64 / sizeof(acc_t);  // a cache line belongs to one thread
  const int64_t share = (width + threads - 1) / threads;
  const int64_t tile = std::min(kTile, std::max(kLine, (share + kLine - 1) / kLine * kLine));
  const int64_t tiles = (width + tile - 1) / tile;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t column = t * tile;
    const int64_t columns = std::min(tile, width - column);
    for (int64_t i = 0; i < segments.total; ++i) {
      const acc_t* newest = nullptr;
      Pieces pieces(segments, i);
      for (Piece piece; pieces.next(piece);) {
        const acc_t* oldest = table + piece.oldest * width + column;
        add_slice(grad + i * width + column, oldest, newest,
                  grad_weight + piece.token * width + column, columns);
        newest = oldest;
      }
    }
  }
}

template <class T>
T* as(void* p) {
  return static_cast<T*>(p);
}
template <class T>
const T* as(const void* p) {
  return static_cast<const T*>(p);
}

constexpr int kUnsupported = -1;

}  // namespace

extern "C" {

int remask_history_step(const void* acc, const void* embed, const void* turn, void* out,
                        int64_t rows, int64_t width, int dtype, int threads) {
  switch (dtype) {
    case kFloat32:
      step_all(as<float>(acc), as<float>(embed), as<float>(turn), as<float>(out), rows, width,
               threads);
      return 0;
    case kBFloat16:
      step_all(as<float>(acc), as<BFloat16>(embed), as<float>(turn), as<float>(out), rows, width,
               threads);
      return 0;
    case kFloat64:
      step_all(as<double>(acc), as<double>(embed), as<double>(turn), as<double>(out), rows, width,
               threads);
      return 0;
    default:
      return kUnsupported;
  }
}

int remask_history_embed(const void* weight, const int32_t* tokens, const int32_t* ends,
                         const int32_t* step, const void* table, void* out, int64_t count,
                         int64_t batch, int64_t positions, int64_t width, int dtype, int threads) {
  const Segments segments{tokens, ends, step, count, batch * positions, positions};
  switch (dtype) {
    case kFloat32:
      embed_all(as<float>(weight), segments, as<float>(table), as<float>(out), width, threads);
      return 0;
    case kBFloat16:
      embed_all(as<BFloat16>(weight), segments, as<float>(table), as<float>(out), width, threads);
      return 0;
    case kFloat64:
      embed_all(as<double>(weight), segments, as<double>(table), as<double>(out), width, threads);
      return 0;
    default:
      return kUnsupported;
  }
}

// `grad_weight` [V, D] must be zero on entry; `dtype` is that of grad, float32 or float64.
int remask_history_embed_backward(const void* grad, const int32_t* tokens, const int32_t* ends,
                                  const int32_t* step, const void* table, void* grad_weight,
                                  int64_t count, int64_t batch, int64_t positions, int64_t width,
                                  int dtype, int threads) {
  const Segments segments{tokens, ends, step, count, batch * positions, positions};
  switch (dtype) {
    case kFloat32:
      backward_all(as<float>(grad), segments, as<float>(table), as<float>(grad_weight), width,
                   threads);
      return 0;
    case kFloat64:
      backward_all(as<double>(grad), segments, as<double>(table), as<double>(grad_weight), width,
                   threads);
      return 0;
    default:
      return kUnsupported;
  }
}

// Are all tokens below `vocabulary`, all ends and steps in 0 .. horizon, and the ends of a position
// non-decreasing? The caller names the fault if the answer is 0.
int remask_segments_are_valid(const int32_t* tokens, const int32_t* ends, const int32_t* step,
                              int64_t count, int64_t batch, int64_t positions, int32_t vocabulary,
                              int32_t horizon) {
  const int64_t total = batch * positions;
  const auto ids = static_cast<uint32_t>(vocabulary);  // as unsigned, a negative one is too large
  const auto last = static_cast<uint32_t>(horizon);
  int bad = 0;
  for (int64_t i = 0; i < count * total; ++i) bad |= static_cast<uint32_t>(tokens[i]) >= ids;
  for (int64_t i = 0; i < (count - 1) * total; ++i) bad |= static_cast<uint32_t>(ends[i]) > last;
  for (int64_t i = total; i < (count - 1) * total; ++i) bad |= ends[i] < ends[i - total];
  for (int64_t b = 0; b < batch; ++b) bad |= static_cast<uint32_t>(step[b]) > last;
  return bad == 0;
}

}  // extern "C"
