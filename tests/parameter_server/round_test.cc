#include "ops/parameter_server/round.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "ops/parameter_server/thc.h"
#include "tests/parameter_server/testing.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::SingleThread;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

ThcScales Scales(float scale, int64_t version = 4, int64_t blocks = 1) {
  return {version, ToTensor(Floats(blocks, scale))};
}

// An entry with its own bytes.
struct OwnEntry {
  const VariableInfo* variable;
  Codec codec;
  Buffer body;
  ThcScales scales = {};
};

Buffer BytesOfFloats(const Floats& values) {
  Buffer bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

OwnEntry Float32(const VariableInfo& variable, const Floats& values) {
  return {&variable, Codec::kFloat32, BytesOfFloats(values)};
}

OwnEntry InRows(const VariableInfo& variable, const Rows& rows) {
  const tensorflow::Tensor body = EncodeRows(rows);
  const uint8_t* const bytes = body.flat<uint8_t>().data();
  return {&variable, Codec::kRows, Buffer(bytes, bytes + body.NumElements())};
}

std::vector<PushEntry> View(const std::vector<OwnEntry>& push) {
  std::vector<PushEntry> entries;
  for (const OwnEntry& entry : push) {
    entries.push_back({entry.variable, entry.codec, entry.body.data(),
                       static_cast<int64_t>(entry.body.size()), entry.scales});
  }
  return entries;
}

absl::Status Check(const std::vector<OwnEntry>& push) {
  return CheckPush(View(push), SingleThread);
}

bool Add(const std::vector<OwnEntry>& push, Round* round) {
  ExpectOk(Check(push));
  if (!round->Admit(View(push))) return false;
  ExpectOk(round->Add(View(push), SingleThread));
  return true;
}

Floats SumOf(const Round& round, const VariableInfo& variable) {
  return ToFloats(round.Sum(variable, SingleThread));
}

#ifndef TF_GC_NEEDS_ADDRESS_SPACE

// Whoever has taken a sum, as a checkpoint does, keeps it: to add to it takes
// memory.
TEST(RoundTest, WithoutMemoryNothingOfAPushIsAdded) {
  const int64_t n = 1 << 24;
  const VariableInfo small = MakeVariable(1, {2}), large = MakeVariable(2, {n});
  TensorPool pool;
  Round round(&pool);
  EXPECT_TRUE(
      Add({Float32(small, {1, 2}), Float32(large, Floats(n, 1))}, &round));
  const tensorflow::Tensor taken = round.Sum(large, SingleThread);
  const std::vector<OwnEntry> push = {Float32(small, {3, 4}),
                                      Float32(large, Floats(n, 5))};
  EXPECT_TRUE(round.Admit(View(push)));
  absl::Status status;
  {
    const WithoutMemory without_memory;
    status = round.Add(View(push), SingleThread);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(SumOf(round, small), (Floats{1, 2}));
  EXPECT_TRUE(Add(push, &round));
  EXPECT_EQ(SumOf(round, small), (Floats{4, 6}));
  EXPECT_EQ(SumOf(round, large).front(), 6);
  EXPECT_EQ(FloatsOf(taken)[0], 1);
}

TEST(RoundTest, WithoutMemoryForValuesThatAreNotFiniteNothingIsAdded) {
  const int64_t n = 1 << 24;
  const VariableInfo small = MakeVariable(1, {2}),
                     large = MakeVariable(2, {n}, kThc);
  TensorPool pool;
  Round round(&pool);
  const std::vector<OwnEntry> push = {
      Float32(small, {3, 4}),
      {&large, Codec::kThcIndices, BytesOfFloats({kNan})}};
  EXPECT_TRUE(round.Admit(View(push)));
  absl::Status status;
  {
    const WithoutMemory without_memory;
    status = round.Add(View(push), SingleThread);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_FALSE(round.Has(1));
  EXPECT_TRUE(Add(push, &round));
  EXPECT_EQ(SumOf(round, small), (Floats{3, 4}));
}

#endif

TEST(RoundTest, SumsOfFloat32AreSums) {
  const VariableInfo a = MakeVariable(1, {3}), b = MakeVariable(2, {2, 1});
  TensorPool pool;
  Round round(&pool);
  EXPECT_TRUE(Add({Float32(a, {1, 2, 3}), Float32(b, {5, 6})}, &round));
  EXPECT_TRUE(Add({Float32(a, {0.5f, -2, 1})}, &round));
  EXPECT_EQ(round.pushes(), 2);
  EXPECT_EQ(SumOf(round, a), (Floats{1.5f, 0, 4}));
  EXPECT_EQ(SumOf(round, b), (Floats{5, 6}));
  EXPECT_EQ(SumOf(round, MakeVariable(3, {2})), (Floats{0, 0}));
}

TEST(RoundTest, SumsThatWereTakenStay) {
  const VariableInfo a = MakeVariable(1, {2});
  TensorPool pool;
  Round round(&pool);
  Add({Float32(a, {1, 2})}, &round);
  const tensorflow::Tensor taken = round.Sum(a, SingleThread);
  Add({Float32(a, {3, 4})}, &round);
  EXPECT_EQ(ToFloats(taken), (Floats{1, 2}));
  EXPECT_EQ(SumOf(round, a), (Floats{4, 6}));
  round.Remove(a.id);
  EXPECT_EQ(SumOf(round, a), (Floats{0, 0}));
}

TEST(RoundTest, IsAddedUpOnceAllThatWasAdmittedIsAdded) {
  const VariableInfo a = MakeVariable(1, {2});
  const std::vector<OwnEntry> push = {Float32(a, {1, 2})};
  TensorPool pool;
  Round round(&pool);
  EXPECT_TRUE(round.IsAddedUp());
  EXPECT_TRUE(round.Admit(View(push)));
  EXPECT_TRUE(round.Admit(View(push)));
  EXPECT_EQ(round.pushes(), 2);
  ExpectOk(round.Add(View(push), SingleThread));
  EXPECT_FALSE(round.IsAddedUp());
  std::thread other([&] { ExpectOk(round.Add(View(push), SingleThread)); });
  round.WaitTillAddedUp();
  EXPECT_EQ(SumOf(round, a), (Floats{2, 4}));
  other.join();
}

TEST(RoundTest, RowsAreKeptOneAfterTheOther) {
  const VariableInfo a = MakeVariable(1, {4, 2});
  TensorPool pool;
  Round round(&pool);
  Add({InRows(a, {2, {3, 1}, {1, 2, 3, 4}})}, &round);
  Add({InRows(a, {2, {}, {}})}, &round);
  Add({InRows(a, {2, {1}, {5, 6}})}, &round);
  Rows rows;
  ExpectOk(round.TakeRows(a, &rows));
  EXPECT_EQ(rows.length, 2);
  EXPECT_EQ(rows.indices, (std::vector<int64_t>{3, 1, 1}));
  EXPECT_EQ(rows.values, (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(SumOf(round, a), (Floats{0, 0, 8, 10, 0, 0, 1, 2}));
  ExpectOk(round.TakeRows(MakeVariable(2, {3, 5}), &rows));
  EXPECT_EQ(rows.count(), 0);
  EXPECT_EQ(rows.length, 5);
}

TEST(RoundTest, DenseGradientsAreNotTakenAsRows) {
  const VariableInfo a = MakeVariable(1, {2});
  TensorPool pool;
  Round round(&pool);
  Add({Float32(a, {1, 2})}, &round);
  Rows rows;
  ExpectInvalid(round.TakeRows(a, &rows), "variable_1");
}

TEST(RoundTest, CompressedPushesAddWhatTheyDecodeTo) {
  for (const std::string push : {"float16", "bfloat16", "int8", "three_lc"}) {
    const VariableInfo a = MakeVariable(1, {1000}, push);
    TensorPool pool;
    Round round(&pool);
    Floats expected(1000, 0);
    for (int i = 0; i < 3; ++i) {
      Floats values = Gaussian(1000, i);
      OwnEntry entry = {&a, a.push.codec,
                        Buffer(MaxEncodedSize(a.push.codec, 1000))};
      const Encoded encoded =
          Encode(a.push.codec, 1, values.data(), nullptr, 1000, values.data(),
                 entry.body.data(), SingleThread);
      entry.body.resize(encoded.size);
      Add({entry}, &round);
      DecodeAdd(a.push.codec, entry.body.data(), entry.body.size(), 1000,
                expected.data(), SingleThread);
    }
    EXPECT_EQ(SumOf(round, a), expected);
  }
}

// A push by THC with these norms; all of its indices are 0.
OwnEntry Thc(const VariableInfo& variable, const Floats& norms,
             const ThcScales& scales = Scales(1)) {
  OwnEntry entry = {&variable, Codec::kThcIndices, BytesOfFloats(norms),
                    scales};
  entry.body.resize(norms.size() * sizeof(float) +
                    ThcIndicesSize(variable.push.thc, variable.size()));
  return entry;
}

OwnEntry ThcNan(const VariableInfo& variable) {
  return {&variable, Codec::kThcIndices, BytesOfFloats({kNan})};
}

TEST(RoundTest, SumsOfThcAreDecodedOnce) {
  const VariableInfo a = MakeVariable(1, {64}, kThc);
  const Floats first = Gaussian(64, 1, 0.3f), second = Gaussian(64, 2, 0.3f);
  const ThcQuantizer quantizer(&a.push.thc, 1, 64, Scales(3));
  TensorPool pool;
  Round round(&pool);
  std::vector<uint16_t> sums(64);
  uint64_t push = 0;
  for (const Floats& values : {first, second}) {
    OwnEntry entry = Thc(a, {2}, Scales(3));
    quantizer.Quantize(values.data(), push++, entry.body.data() + 4,
                       SingleThread);
    quantizer.Add(entry.body.data() + 4, sums.data(), SingleThread);
    EXPECT_TRUE(Add({entry}, &round));
  }
  Floats expected(64);
  quantizer.DecodeAdd(sums.data(), 2, expected.data(), SingleThread);
  EXPECT_EQ(SumOf(round, a), expected);
  // A worker that has no scales yet takes part.
  Add({Float32(a, Floats(64, 1))}, &round);
  EXPECT_EQ(SumOf(round, a), Sum(Floats(64, 1), expected));
}

TEST(RoundTest, PushesThatCouldOverflowAreRefused) {
  const VariableInfo a = MakeVariable(
      1, {64},
      "thc bits=2 truncation=1.64 headroom=1 seed=1 table=0,1,2,30000");
  const VariableInfo b = MakeVariable(2, {1});
  TensorPool pool;
  Round round(&pool);
  EXPECT_TRUE(Add({Thc(a, {1})}, &round));
  EXPECT_TRUE(Add({Float32(b, {1}), Thc(a, {1})}, &round));
  EXPECT_FALSE(Add({Float32(b, {1}), Thc(a, {1})}, &round));
  EXPECT_EQ(round.pushes(), 2);
  EXPECT_EQ(SumOf(round, b), Floats{1});
  EXPECT_TRUE(Add({Float32(b, {1})}, &round));
}

TEST(RoundTest, PushesWithOtherScalesAddUpWhatTheyDecodeTo) {
  const VariableInfo a = MakeVariable(1, {64}, kThc);
  TensorPool pool;
  Round all(&pool);
  Floats expected(64, 0);
  for (const ThcScales& scales :
       {Scales(1, 4), Scales(3, 5), Scales(3, 5), Scales(1, 4)}) {
    Round one(&pool);
    EXPECT_TRUE(Add({Thc(a, {1}, scales)}, &one));
    EXPECT_TRUE(Add({Thc(a, {1}, scales)}, &all));
    expected = Sum(expected, SumOf(one, a));
  }
  EXPECT_EQ(all.pushes(), 4);
  ExpectNear(SumOf(all, a), expected, 1e-5f);
  EXPECT_EQ(all.Norms(a), Floats{1});
}

TEST(RoundTest, NormsAreTheLargestOfFinitePushes) {
  const VariableInfo a = MakeVariable(1, {65}, kThc);  // two blocks
  const ThcScales scales = Scales(1, /*version=*/4, /*blocks=*/2);
  TensorPool pool;
  Round round(&pool);
  EXPECT_TRUE(round.Norms(a).empty());
  Add({ThcNan(a)}, &round);
  EXPECT_TRUE(round.Norms(a).empty());
  Add({Thc(a, {1, 5}, scales)}, &round);
  Add({Float32(a, Floats(65, 0)),
       {&a, Codec::kThcNorms, BytesOfFloats({2, 3})}},
      &round);
  EXPECT_EQ(round.Norms(a), (Floats{2, 5}));
  Round notes(&pool);
  const std::vector<OwnEntry> push = {Thc(a, {1, 5}, scales)};
  notes.AddNorms(View(push));
  EXPECT_EQ(notes.pushes(), 0);
  EXPECT_EQ(notes.Norms(a), (Floats{1, 5}));
}

TEST(RoundTest, OnePushThatIsNotFiniteMakesTheSumNan) {
  const VariableInfo a = MakeVariable(1, {64}, kThc);
  TensorPool pool;
  Round round(&pool);
  Add({Thc(a, {1})}, &round);
  Add({ThcNan(a)}, &round);
  for (const float value : SumOf(round, a)) {
    EXPECT_TRUE(std::isnan(value));
  }
}

TEST(RoundTest, ValuesOfEntriesAreCounted) {
  const VariableInfo a = MakeVariable(1, {64}, kThc);
  const VariableInfo b = MakeVariable(2, {9, 3}, "three_lc rows=9 decay=0.5");
  Buffer with_statistics(2 * (9 + 3));
  for (const uint8_t byte : BytesOfFloats(Floats(27, 1))) {
    with_statistics.push_back(byte);
  }
  const std::vector<OwnEntry> push = {
      Thc(a, {1}),
      {&a, Codec::kThcNorms, BytesOfFloats({2})},
      InRows(b, {3, {1, 2}, Floats(6, 1)}),
      {&b, Codec::kFloat32, with_statistics}};
  const std::vector<PushEntry> entries = View(push);
  EXPECT_EQ(CountValues(entries[0]), 64);
  EXPECT_EQ(CountValues(entries[1]), 0);
  EXPECT_EQ(CountValues(entries[2]), 6);
  EXPECT_EQ(CountValues(entries[3]), 27);
  EXPECT_EQ(CountStatisticsBytes(entries[1]), 0);
  EXPECT_EQ(CountStatisticsBytes(entries[2]), 0);
  EXPECT_EQ(CountStatisticsBytes(entries[3]), 24);
}

TEST(CheckPushTest, WrongEntriesAreDataLossAndNameTheVariable) {
  const VariableInfo a = MakeVariable(1, {2}, "int8");
  const VariableInfo b = MakeVariable(2, {64}, kThc);
  const std::string name = "variable_1 of the push message";
  ExpectDataLoss(Check({Float32(a, {1, 2, 3})}), name);
  ExpectDataLoss(Check({{&a, Codec::kFloat16, Buffer(4)}}),
                 "the codec is 1, expected 0 or that of \"int8\"");
  ExpectDataLoss(Check({{&a, Codec::kThcNorms, Buffer(4)}}), "the codec is 12");
  ExpectDataLoss(Check({Float32(a, {1, 2}), Float32(a, {1, 2})}),
                 "it comes twice");
  ExpectDataLoss(Check({InRows(a, {1, {2}, {1}})}), "the index of a row is 2");
  ExpectDataLoss(Check({Thc(b, {-1})}), "the norm of block 0");
  ExpectDataLoss(Check({Thc(b, {1, 1})}), "variable_2 of the push message");
  ExpectOk(Check({Float32(b, Floats(64, 1)),
                  {&b, Codec::kThcNorms, BytesOfFloats({kNan})}}));
}

}  // namespace
}  // namespace tf_gc::parameter_server
