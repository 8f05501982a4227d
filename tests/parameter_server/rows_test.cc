#include "ops/parameter_server/rows.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "ops/parameter_server/buffers.h"
#include "tests/kernels/testing.h"
#include "tests/parameter_server/testing.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::SingleThread;

constexpr kernels::Seed kSeed = {1, 2};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Buffer BytesOfTensor(const tensorflow::Tensor& tensor) {
  return Buffer(BytesOf(tensor), BytesOf(tensor) + tensor.NumElements());
}

Buffer Packed(const Rows& rows, const RowsShape& shape, int bits) {
  return BytesOfTensor(
      EncodePackedRows(rows, shape, bits, kSeed, SingleThread));
}

absl::Status Decode(Codec codec, const Buffer& body, const RowsShape& shape,
                    Rows* rows) {
  return DecodeRows(codec, body.data(), body.size(), shape, "test", rows);
}

TEST(RowsTest, ComeBack) {
  const Rows rows = {2, {4, 0}, {1, 2, 3, 4}};
  const Buffer body = BytesOfTensor(EncodeRows(rows));
  Rows read;
  ExpectOk(Decode(Codec::kRows, body, {5, 2}, &read));
  EXPECT_EQ(read.length, 2);
  EXPECT_EQ(read.indices, rows.indices);
  EXPECT_EQ(read.values, rows.values);
  EXPECT_EQ(CountRowValues(Codec::kRows, body.data(), body.size(), {5, 2}), 4);
  Floats sum(10, 1);
  AddRows(read, sum.data());
  EXPECT_EQ(sum, (Floats{4, 5, 1, 1, 1, 1, 1, 1, 2, 3}));
}

TEST(RowsTest, WrongOnesAreDataLoss) {
  const Buffer body = BytesOfTensor(EncodeRows({2, {4, 0}, {1, 2, 3, 4}}));
  Rows rows;
  const auto decode = [&](const Buffer& bytes, const RowsShape& shape) {
    return Decode(Codec::kRows, bytes, shape, &rows);
  };
  ExpectDataLoss(decode(body, {4, 2}), "the index of a row is 4");
  ExpectDataLoss(decode(body, {5, 3}), "a row has 2 values, expected 3");
  ExpectDataLoss(decode({}, {5, 2}), "the number of rows");
  Buffer longer = body;
  longer.push_back(0);
  ExpectDataLoss(decode(longer, {5, 2}), "2 rows in 33 bytes");
  ForEachDamage(body, [&](const Buffer& damaged) {
    const absl::Status status = decode(damaged, {5, 2});
    if (damaged.size() < body.size() || !status.ok()) {
      ExpectDataLoss(status);
    } else {
      EXPECT_EQ(rows.count(), 2);
      for (const int64_t index : rows.indices) {
        EXPECT_TRUE(index >= 0 && index < 5) << index;
      }
    }
  });
}

TEST(PackedRowsTest, RowsOfOneIndexAreAddedUpInOrder) {
  // The sum is another one in another order.
  const Rows sums = SumRows({1, {4, 0, 4, 4}, {0x1p24f, 7, 1, -0x1p24f}});
  EXPECT_EQ(sums.indices, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(sums.values, (Floats{7, 0}));
  EXPECT_EQ(SumRows({3, {}, {}}).count(), 0);
}

TEST(PackedRowsTest, BytesAreThoseOfTheDocumentation) {
  const Rows rows = {2, {4, 1, 4}, {0.5, 0, 3, -3, 0.5, -1}};
  EXPECT_EQ(Packed(rows, {5, 2}, 2),
            (Buffer{2, 0, 0, 0,              // rows
                    2,                       // bits
                    0b10010,                 // a bitmap of the indices 1 and 4
                    0x40, 0x40, 0x80, 0x3f,  // scales 3 and 1
                    0b00'10'00'10}));        // codes 2, 0, 2 and 0
}

TEST(PackedRowsTest, ExactOnesComeBack) {
  const Rows rows = {2, {1, 4}, {1, kNan, 3e38, 1e-45f}};
  const Buffer body = Packed(rows, {5, 2}, kExactBits);
  Rows read;
  ExpectOk(Decode(Codec::kPackedRows, body, {5, 2}, &read));
  EXPECT_EQ(read.indices, rows.indices);
  EXPECT_EQ(ToTensor(read.values).tensor_data(),
            ToTensor(rows.values).tensor_data());
  EXPECT_EQ(
      CountRowValues(Codec::kPackedRows, body.data(), body.size(), {5, 2}), 4);
}

TEST(PackedRowsTest, ScalesAreRoundedUp) {
  Rows read;
  const Floats values = {1 + 0x1p-9f, -0.5, 0, 0};
  ExpectOk(Decode(Codec::kPackedRows, Packed({2, {0, 1}, values}, {2, 2}, 2),
                  {2, 2}, &read));
  constexpr float kScale = 1 + 0x1p-7f;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(read.values[i] == 0 || std::fabs(read.values[i]) == kScale);
  }
  EXPECT_EQ(read.values[2], 0);
}

TEST(PackedRowsTest, ThreadsGiveTheSameBytes) {
  constexpr int64_t kRows = 1000, kLength = 37;
  std::vector<int64_t> indices(kRows);
  for (int64_t i = 0; i < kRows; ++i) indices[i] = 2 * i;
  Floats values(kRows * kLength);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(i);
  const Rows rows = {kLength, indices, values};
  const RowsShape shape = {2 * kRows, kLength};
  for (const int bits : {2, 5, 8}) {
    Buffer body(PackedRowsSize(kRows, shape, bits));
    PackRows(rows, shape, bits, kSeed, kernels::Threads(3), body.data());
    EXPECT_EQ(body, Packed(rows, shape, bits));
  }
}

TEST(PackedRowsTest, WrongOnesAreDataLoss) {
  const RowsShape shape = {9, 3};
  const Buffer body = Packed({3, {1, 5}, {1, 2, 3, 4, 5, 6}}, shape, 4);
  Rows rows;
  Buffer longer = body;
  longer.push_back(0);
  ExpectDataLoss(Decode(Codec::kPackedRows, longer, shape, &rows),
                 "the body has");
  ExpectDataLoss(Decode(Codec::kPackedRows, body, {1, 3}, &rows),
                 "the number of rows is 2 of 1");
  ForEachDamage(body, [&](const Buffer& damaged) {
    const absl::Status status =
        Decode(Codec::kPackedRows, damaged, shape, &rows);
    if (damaged.size() < body.size() || !status.ok()) {
      ExpectDataLoss(status);
    } else {
      for (const int64_t index : rows.indices) {
        EXPECT_TRUE(index >= 0 && index < shape.rows) << index;
      }
    }
  });
}

}  // namespace
}  // namespace tf_gc::parameter_server
