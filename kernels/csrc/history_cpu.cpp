// CPU kernels of the history operators: OpenMP over positions or columns, AVX2 where available.
//
// Plain C functions without a torch header: the library builds in seconds, works with every torch
// release, and is called through ctypes. The caller (native.py) guarantees shapes, types and
// contiguity.

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

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
constexpr int64_t kBlock = 64;            // positions handled at once
constexpr int64_t kSmallBytes = 1 << 15;  // fits the first-level cache

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

// Segments are summed in rounds, each with its sums in registers. Up to kLargest segments take one
// round. A larger S is known only at run time; its rounds take as many segments as most paths have.
constexpr int kLargest = 4;
constexpr int kRuntimeRound = 3;
constexpr int kRuntime = 0;  // template argument for an S that is no constant

// Where a position's segments point: rows of the embedding or of its gradient, and the table, both
// from the first column of a tile.
template <class row_t, class acc_t>
struct Tile {
  row_t* rows;
  int64_t row_stride;
  const acc_t* table;
  int64_t table_stride;
  int64_t columns;
};

// What one round needs of a position: the segments that are not empty, newest first.
template <class row_t, class acc_t>
struct Terms {
  row_t* row[kLargest];
  const acc_t* oldest[kLargest];  // C[oldest] of each segment
  const acc_t* newest;            // C[newest] of the first of them; null for C[0] = 0
  int count;
  int states_left;  // states that older segments show, which are left for the next round
};

// Writes the terms of segments top, top - 1, ..., top - kSize + 1 of position i; those below 0 are
// empty. Which of the others are empty is hard to predict, so there is no branch on it. kInner
// asserts that none of them is segment 0 or below.
template <int kSize, bool kInner, class row_t, class acc_t>
inline void collect(const Segments& segments, const Tile<row_t, acc_t>& tile, int64_t i,
                    int64_t top, int newest, int num_states, Terms<row_t, acc_t>& terms) {
  const Group<kSize, kInner> group(segments, i, top, newest, num_states);
  int count = 0;
  for (int j = 0; j < kSize; ++j) {
    const int64_t token = segments.token(kInner ? top - j : std::max<int64_t>(top - j, 0), i);
    terms.row[count] = tile.rows + token * tile.row_stride;
    terms.oldest[count] = tile.table + group.edge[j + 1] * tile.table_stride;
    count += !group.is_empty(j);
  }
  terms.newest = newest > 0 ? tile.table + newest * tile.table_stride : nullptr;
  terms.count = count;
  terms.states_left = num_states - group.edge[kSize];
}

template <class T>
inline void prefetch(const T* p, int64_t width) {
  for (int64_t d = 0; d < width; d += 64 / sizeof(T)) __builtin_prefetch(p + d);
}

// Calls use(i, terms) for every round of positions begin to end, of which there are at most kBlock.
// Rows are read at random, so those of the next position are fetched while this one is summed.
// kSegments is S or kRuntime.
template <int kSegments, class row_t, class acc_t, class Use>
inline void for_each_round(const Segments& segments, const Tile<row_t, acc_t>& tile, int64_t begin,
                           int64_t end, Use use) {
  constexpr bool kIsRuntime = kSegments == kRuntime;
  constexpr int kSize = kIsRuntime ? kRuntimeRound : kSegments;
  const int64_t last = (kIsRuntime ? segments.count : kSegments) - 1;
  Terms<row_t, acc_t> block[kBlock];
  for (int64_t i = begin; i < end;) {
    const int num_states = segments.num_states(i);
    const int64_t row_end = std::min(end, (i / segments.positions + 1) * segments.positions);
    for (; i < row_end; ++i)
      collect<kSize, kIsRuntime>(segments, tile, i, last, 0, num_states, block[i - begin]);
  }
  for (int64_t i = begin; i < end; ++i) {
    Terms<row_t, acc_t>& terms = block[i - begin];
    if (i + 1 < end) {
      const Terms<row_t, acc_t>& next = block[i + 1 - begin];
      for (int s = 0; s < next.count; ++s) prefetch(next.row[s], tile.columns);
    }
    use(i, terms);
    if constexpr (kIsRuntime) {
      for (int64_t top = last - kSize; terms.states_left > 0; top -= kSize) {
        const int num_states = segments.num_states(i);
        const int newest = num_states - terms.states_left;
        collect<kSize, false>(segments, tile, i, top, newest, num_states, terms);
        use(i, terms);
      }
    }
  }
}

// out[0:width] = sum over kCount terms of (C[oldest] - C[newest]) * row, where the newest of a term
// is the oldest of the one before it. With kAdd the sum is added to out.
template <int kCount, bool kAdd, class weight_t, class acc_t>
void sum_terms(const Terms<const weight_t, acc_t>& terms, acc_t* out, int64_t width) {
  const weight_t* row[kCount];  // copies, which the compiler can keep in registers
  const acc_t* upto[kCount];
  for (int s = 0; s < kCount; ++s) {
    row[s] = terms.row[s];
    upto[s] = terms.oldest[s];
  }
  int64_t d = 0;
#ifdef REMASK_AVX2
  if constexpr (sizeof(acc_t) == 4) {
    for (; d + 8 <= width; d += 8) {
      __m256 sum = kAdd ? load8(out + d) : _mm256_setzero_ps();
      __m256 newest = kAdd ? load8(terms.newest + d) : _mm256_setzero_ps();
      for (int s = 0; s < kCount; ++s) {
        const bool first = s == 0 && !kAdd;
        const __m256 oldest = load8(upto[s] + d);
        const __m256 c = first ? oldest : _mm256_sub_ps(oldest, newest);
        const __m256 term = times8(c, load8(row[s] + d));
        sum = first ? term : _mm256_add_ps(sum, term);
        newest = oldest;
      }
      _mm256_storeu_ps(out + d, sum);
    }
  }
#endif
  for (; d < width; d += 2) {
    Pair<acc_t> sum = kAdd ? load_pair<acc_t>(out + d) : Pair<acc_t>{0, 0};
    Pair<acc_t> newest = kAdd ? load_pair<acc_t>(terms.newest + d) : Pair<acc_t>{0, 0};
    for (int s = 0; s < kCount; ++s) {
      const Pair<acc_t> oldest = load_pair<acc_t>(upto[s] + d);
      sum = sum + (oldest - newest) * load_pair<acc_t>(row[s] + d);
      newest = oldest;
    }
    out[d] = sum.re;
    out[d + 1] = sum.im;
  }
}

template <bool kAdd, class weight_t, class acc_t>
inline void sum_any(const Terms<const weight_t, acc_t>& terms, acc_t* out, int64_t width) {
  static_assert(kLargest == 4, "one line for each count");
  if (terms.count == 1) sum_terms<1, kAdd>(terms, out, width);
  if (terms.count == 2) sum_terms<2, kAdd>(terms, out, width);
  if (terms.count == 3) sum_terms<3, kAdd>(terms, out, width);
  if (terms.count == 4) sum_terms<4, kAdd>(terms, out, width);
}

template <int kSegments, class weight_t, class acc_t>
void embed_all(const weight_t* weight, const Segments& segments, const acc_t* table, acc_t* out,
               int64_t width, int threads) {
  const int64_t tiles = (width + kTile - 1) / kTile;
  const int64_t blocks = (segments.total + kBlock - 1) / kBlock;
#pragma omp parallel for num_threads(threads) schedule(static) collapse(2)
  for (int64_t t = 0; t < tiles; ++t) {
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t column = t * kTile;
      const Tile<const weight_t, acc_t> tile{weight + column, width, table + column, width,
                                             std::min(kTile, width - column)};
      const int64_t begin = block * kBlock;
      const int64_t end = std::min(segments.total, begin + kBlock);
      for_each_round<kSegments>(segments, tile, begin, end, [&](int64_t i, const auto& terms) {
        acc_t* to = out + i * width + column;
        if (terms.newest)
          sum_any<true>(terms, to, tile.columns);
        else
          sum_any<false>(terms, to, tile.columns);
      });
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
template <int kSegments, class acc_t>
void backward_all(const acc_t* grad, const Segments& segments, const acc_t* table,
                  acc_t* grad_weight, int64_t vocabulary, int64_t width, int threads) {
  constexpr int64_t kLine = 64 / sizeof(acc_t);  // a cache line belongs to one thread
  const int64_t share = (width + threads - 1) / threads;
  const int64_t tile_width = std::min(kTile, std::max(kLine, (share + kLine - 1) / kLine * kLine));
  const int64_t tiles = (width + tile_width - 1) / tile_width;
  // Rows of a small vocabulary are written so often that threads contend for the cache lines at the
  // borders of their columns, which the hardware prefetches for both. Each sums into its own copy.
  const bool is_small = vocabulary * tile_width * sizeof(acc_t) <= kSmallBytes;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t column = t * tile_width;
    const int64_t columns = std::min(tile_width, width - column);
    std::vector<acc_t> own(is_small ? vocabulary * columns : 0);
    const Tile<acc_t, acc_t> tile{is_small ? own.data() : grad_weight + column,
                                  is_small ? columns : width, table + column, width, columns};
    for (int64_t begin = 0; begin < segments.total; begin += kBlock) {
      const int64_t end = std::min(segments.total, begin + kBlock);
      for_each_round<kSegments>(segments, tile, begin, end, [&](int64_t i, const auto& terms) {
        const acc_t* from = grad + i * width + column;
        if (i + 1 < segments.total) prefetch(from + width, columns);
        const acc_t* newest = terms.newest;
        for (int s = 0; s < terms.count; ++s) {
          add_slice(from, terms.oldest[s], newest, terms.row[s], columns);
          newest = terms.oldest[s];
        }
      });
    }
    for (int64_t v = 0; v < (is_small ? vocabulary : 0); ++v)
      std::copy_n(own.data() + v * columns, columns, grad_weight + v * width + column);
  }
}

// Calls `use` with S as a constant if it is small, and with kRuntime otherwise.
template <class Use>
void with_constant(int64_t num_segments, Use use) {
  switch (num_segments) {
    case 1:
      return use(std::integral_constant<int, 1>());
    case 2:
      return use(std::integral_constant<int, 2>());
    case 3:
      return use(std::integral_constant<int, 3>());
    case 4:
      return use(std::integral_constant<int, 4>());
    default:
      return use(std::integral_constant<int, kRuntime>());
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
      with_constant(count, [&](auto constant) {
        embed_all<constant()>(as<float>(weight), segments, as<float>(table), as<float>(out), width,
                              threads);
      });
      return 0;
    case kBFloat16:
      with_constant(count, [&](auto constant) {
        embed_all<constant()>(as<BFloat16>(weight), segments, as<float>(table), as<float>(out),
                              width, threads);
      });
      return 0;
    case kFloat64:
      with_constant(count, [&](auto constant) {
        embed_all<constant()>(as<double>(weight), segments, as<double>(table), as<double>(out),
                              width, threads);
      });
      return 0;
    default:
      return kUnsupported;
  }
}

// `grad_weight` [V, D] must be zero on entry; `dtype` is that of grad, float32 or float64.
int remask_history_embed_backward(const void* grad, const int32_t* tokens, const int32_t* ends,
                                  const int32_t* step, const void* table, void* grad_weight,
                                  int64_t count, int64_t batch, int64_t positions,
                                  int64_t vocabulary, int64_t width, int dtype, int threads) {
  const Segments segments{tokens, ends, step, count, batch * positions, positions};
  switch (dtype) {
    case kFloat32:
      with_constant(count, [&](auto constant) {
        backward_all<constant()>(as<float>(grad), segments, as<float>(table),
                                 as<float>(grad_weight), vocabulary, width, threads);
      });
      return 0;
    case kFloat64:
      with_constant(count, [&](auto constant) {
        backward_all<constant()>(as<double>(grad), segments, as<double>(table),
                                 as<double>(grad_weight), vocabulary, width, threads);
      });
      return 0;
    default:
      return kUnsupported;
  }
}

// Returns 1 if all tokens lie in 0 .. vocabulary - 1, all ends and steps in 0 .. horizon, and the
// ends of every position are non-decreasing.
int remask_segments_are_valid(const int32_t* tokens, const int32_t* ends, const int32_t* step,
                              int64_t count, int64_t batch, int64_t positions, int32_t vocabulary,
                              int32_t horizon) {
  const int64_t total = batch * positions;
  const auto ids = static_cast<uint32_t>(vocabulary);  // as unsigned, a negative one is too large
  int bad = 0;
  for (int64_t i = 0; i < count * total; ++i) bad |= static_cast<uint32_t>(tokens[i]) >= ids;
  if (count > 1) {
    const int32_t* final = ends + (count - 2) * total;
    for (int64_t i = 0; i < total; ++i) bad |= (ends[i] < 0) | (final[i] > horizon);
    for (int64_t i = 0; i < (count - 2) * total; ++i) bad |= ends[i] > ends[i + total];
  }
  for (int64_t b = 0; b < batch; ++b) bad |= (step[b] < 0) | (step[b] > horizon);
  return bad == 0;
}

}  // extern "C"
