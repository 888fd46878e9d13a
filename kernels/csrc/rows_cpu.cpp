// Row operations of the pipeline that need a loop: uniform draws, subsets, values in half bytes.
//
// Each function gives exactly what its NumPy form in rows.py gives, so a missing compiler changes no
// byte of the data. The caller guarantees sizes and types.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

constexpr uint8_t kPadding = 15;  // fills the last half byte of an odd row; values lie below it

}  // namespace

extern "C" {

// Uniform draws from [0, 1) with 53 bits, by SplitMix64 seeded with `key`.
void remask_uniforms(int64_t count, uint64_t key, double* out) {
  for (int64_t i = 0; i < count; ++i) {
    uint64_t z = key += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    out[i] = static_cast<double>(static_cast<int64_t>((z ^ (z >> 31)) >> 11)) * 0x1p-53;
  }
}

// Floyd's algorithm: chooses size[s] of the count[s] items of each set. `draw` holds a uniform draw
// from [0, 1) for every item to choose. Items are numbered consecutively across sets; the numbers of
// the chosen items are written in ascending order.
void remask_choose_subsets(int64_t sets, const int64_t* count, const int64_t* size,
                           const double* draw, int64_t* chosen) {
  std::vector<uint64_t> taken;  // a bit per item of one set; all 0 between sets
  int64_t first = 0;
  for (int64_t s = 0; s < sets; ++s) {
    const std::size_t words = (count[s] + 63) / 64;
    if (taken.size() < words) taken.resize(words, 0);
    uint64_t* const bits = taken.data();
    for (int64_t limit = count[s] - size[s] + 1; limit <= count[s]; ++limit) {
      const uint64_t drawn = static_cast<uint64_t>(static_cast<int64_t>(*draw++ * limit));
      const bool is_taken = bits[drawn / 64] >> (drawn % 64) & 1;
      const uint64_t item = is_taken ? static_cast<uint64_t>(limit - 1) : drawn;
      bits[item / 64] |= uint64_t{1} << (item % 64);
    }
    for (std::size_t w = 0; w < words; ++w) {
      for (uint64_t left = bits[w]; left; left &= left - 1)
        *chosen++ = first + static_cast<int64_t>(w) * 64 + __builtin_ctzll(left);
      bits[w] = 0;
    }
    first += count[s];
  }
}

// Packs values below 15 into half bytes, the first into the low half. Row r has count[r] values and
// starts a byte.
void remask_pack_halves(int64_t rows, const int64_t* count, const uint8_t* values,
                        uint8_t* packed) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t pairs = count[r] / 2;
    for (int64_t i = 0; i < pairs; ++i)
      packed[i] = static_cast<uint8_t>(values[2 * i] | values[2 * i + 1] << 4);
    packed += pairs;
    values += 2 * pairs;
    if (count[r] % 2) *packed++ = static_cast<uint8_t>(*values++ | kPadding << 4);
  }
}

// The inverse of remask_pack_halves. Row r has count[r] values.
void remask_unpack_halves(int64_t rows, const int64_t* count, const uint8_t* packed,
                          uint8_t* values) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t pairs = count[r] / 2;
    for (int64_t i = 0; i < pairs; ++i) {
      values[2 * i] = packed[i] & 15;
      values[2 * i + 1] = packed[i] >> 4;
    }
    packed += pairs;
    values += 2 * pairs;
    if (count[r] % 2) *values++ = *packed++ & 15;
  }
}

}  // extern "C"
