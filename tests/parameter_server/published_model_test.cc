#include "ops/parameter_server/published_model.h"

#include <malloc.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parameter_server/testing.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::SingleThread;

constexpr uint32_t kId = 3;

// A published model of one variable.
class Published {
 public:
  explicit Published(const VariableInfo& info) : info_(info) {
    model_.Add(std::make_shared<VariableInfo>(info_));
  }

  PublishedModel& operator*() { return model_; }
  PublishedModel* operator->() { return &model_; }

  void Publish(const Floats& values) {
    std::vector<Change> changes = model_.Changes({{kId, ToTensor(values)}});
    for (Change& change : changes) change.Encode(SingleThread, &pool_);
    model_.Publish(changes, model_.step() + 1);
  }

  // The entries for a worker with this version.
  struct Entry {
    Codec codec;
    Buffer body;
  };
  std::vector<Entry> Entries(int64_t version) const {
    MessageWriter writer(Kind::kPull, 0);
    model_.AddEntries(kId, version, &writer);
    Buffer bytes(writer.size());
    writer.Write(bytes.data());
    Message message;
    ExpectOk(ReadMessage(Kind::kPull, bytes.data(), bytes.size(), &message));
    std::vector<Entry> entries;
    for (const Message::Entry& entry : message.entries) {
      EXPECT_EQ(entry.id, kId);
      entries.push_back(
          {entry.codec, Buffer(entry.body, entry.body + entry.size)});
    }
    return entries;
  }

  // What that worker makes of its values.
  Floats Follow(int64_t version, Floats values) const {
    for (const Entry& entry : Entries(version)) {
      const Buffer& body = entry.body;
      ExpectOk(CheckBody(entry.codec, body.data(), body.size(), info_.size(),
                         "test", SingleThread));
      if (entry.codec == Codec::kFloat32) values.assign(info_.size(), 0);
      DecodeAdd(entry.codec, body.data(), body.size(), info_.size(),
                values.data(), SingleThread);
    }
    return values;
  }

  // The published values.
  Floats Values() const { return Follow(0, {}); }

 private:
  const VariableInfo info_;
  PublishedModel model_;
  TensorPool pool_;
};

std::vector<Codec> CodecsOf(const std::vector<Published::Entry>& entries) {
  std::vector<Codec> codecs;
  for (const Published::Entry& entry : entries) codecs.push_back(entry.codec);
  return codecs;
}

using Codecs = std::vector<Codec>;

TEST(PublishedModelTest, StartsWithTheFirstValuesInVersionOne) {
  Published model(MakeVariable(kId, {3}, "float32", "int8"));
  EXPECT_EQ(model->version(), 1);
  EXPECT_FALSE(model->HasValue(kId));
  EXPECT_TRUE(model.Entries(0).empty());
  model->Capture({{kId, ToTensor({1, 2, 3})}});
  model->Capture({{kId, ToTensor({4, 5, 6})}});  // there are values already
  EXPECT_TRUE(model->HasValue(kId));
  EXPECT_EQ(model->version(), 1);
  EXPECT_EQ(model.Values(), (Floats{1, 2, 3}));
  EXPECT_TRUE(model.Entries(1).empty());
}

TEST(PublishedModelTest, ChangesAreEncodedOncePerVersion) {
  Published model(MakeVariable(kId, {100}, "float32", "int8"));
  model->Capture({{kId, ToTensor(Gaussian(100, 1))}});
  const Floats first = model.Values();
  model.Publish(Gaussian(100, 2));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(CodecsOf(model.Entries(1)), Codecs{Codec::kInt8});
  }
  EXPECT_EQ(model->encodings(), 1);
  EXPECT_EQ(model.Follow(1, first), model.Values());
  EXPECT_TRUE(model.Entries(2).empty());
}

TEST(PublishedModelTest, NoChangeIsNoEntry) {
  Published model(MakeVariable(kId, {2}, "float32", "int8"));
  model->Capture({{kId, ToTensor({1, 2})}});
  model.Publish({1, 2});
  EXPECT_EQ(model->version(), 2);
  EXPECT_EQ(model->encodings(), 0);
  EXPECT_TRUE(model.Entries(1).empty());
}

TEST(PublishedModelTest, WhatIsLeftOverIsPartOfTheNextChange) {
  Published model(MakeVariable(kId, {100}, "float32", "three_lc"));
  model->Capture({{kId, ToTensor(Floats(100, 0))}});
  const Floats value = Gaussian(100, 1);
  for (int i = 0; i < 60; ++i) model.Publish(value);
  ExpectNear(model.Values(), value, 1e-3);
}

TEST(PublishedModelTest, EveryVersionLeadsToTheNewestBitForBit) {
  for (const std::string pull : {"float16", "bfloat16", "int8", "three_lc"}) {
    const int64_t n = 200;
    Published model(MakeVariable(kId, {n}, "float32", pull));
    Floats value = Gaussian(n, 1);
    model->Capture({{kId, ToTensor(value)}});
    std::vector<Floats> versions = {{}, model.Values()};
    for (int version = 2; version < 40; ++version) {
      value = Sum(value, Gaussian(n, version, 0.01f));
      model.Publish(value);
      versions.push_back(model.Values());
      for (int64_t have = 1; have <= version; ++have) {
        ASSERT_EQ(model.Follow(have, versions[have]), versions.back());
      }
      EXPECT_LE(model->log_bytes(), 4 * n);
    }
  }
}

TEST(PublishedModelTest, MissedChangesAsLargeAsTheVariableAreNotSent) {
  const int64_t n = 16;  // a change takes 4 + 16 bytes, of 64
  Published model(MakeVariable(kId, {n}, "float32", "int8"));
  model->Capture({{kId, ToTensor(Gaussian(n, 0))}});
  for (int i = 1; i <= 4; ++i) model.Publish(Gaussian(n, i));
  EXPECT_EQ(model->log_bytes(), 60);
  EXPECT_EQ(CodecsOf(model.Entries(4)), Codecs{Codec::kInt8});
  EXPECT_EQ(CodecsOf(model.Entries(2)), Codecs(3, Codec::kInt8));
  EXPECT_EQ(CodecsOf(model.Entries(1)), Codecs{Codec::kFloat32});
}

TEST(PublishedModelTest, WorkersOfUnknownVersionsGetTheWholeVariable) {
  Published model(MakeVariable(kId, {2}, "float32", "int8"));
  model->Capture({{kId, ToTensor({1, 2})}});
  for (const int64_t version : {0, 2, 100}) {
    EXPECT_EQ(CodecsOf(model.Entries(version)), Codecs{Codec::kFloat32});
  }
}

TEST(PublishedModelTest, Float32ReplacesWhatHasChanged) {
  Published model(MakeVariable(kId, {2}, "float32", "float32"));
  model->Capture({{kId, ToTensor({1, 2})}});
  model.Publish({1, 2});
  EXPECT_TRUE(model.Entries(1).empty());
  model.Publish({1, -0.1f});
  EXPECT_EQ(CodecsOf(model.Entries(2)), Codecs{Codec::kFloat32});
  EXPECT_EQ(model.Values(), (Floats{1, -0.1f}));
  EXPECT_EQ(model->encodings(), 0);
}

TEST(PublishedModelTest, WarmUpIsWhole) {
  Published model(MakeVariable(kId, {100}, "float32", "int8", 2));
  model->Capture({{kId, ToTensor(Gaussian(100, 0))}});
  for (int i = 1; i <= 3; ++i) model.Publish(Gaussian(100, i));
  // From 1 to 2 and to 3 it is whole, from 3 to 4 no more.
  EXPECT_EQ(CodecsOf(model.Entries(2)), Codecs{Codec::kFloat32});
  EXPECT_EQ(CodecsOf(model.Entries(3)), Codecs{Codec::kInt8});
  EXPECT_EQ(model->encodings(), 1);
}

TEST(PublishedModelTest, WhatIsNotFiniteIsWhole) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::string pull : {"float16", "int8", "three_lc"}) {
    Published model(MakeVariable(kId, {2}, "float32", pull));
    model->Capture({{kId, ToTensor({1, 2})}});
    model.Publish({inf, 3});
    EXPECT_EQ(CodecsOf(model.Entries(1)), Codecs{Codec::kFloat32});
    EXPECT_EQ(model.Values(), (Floats{inf, 3}));
    model.Publish({1, 1e38f});  // back to finite values
    EXPECT_EQ(model.Values(), (Floats{1, 1e38f}));
  }
}

TEST(PublishedModelTest, PublishWholeForgetsTheLog) {
  Published model(MakeVariable(kId, {100}, "float32", "int8"));
  model->Capture({{kId, ToTensor(Gaussian(100, 0))}});
  model.Publish(Gaussian(100, 1));
  const Floats values = Gaussian(100, 2);
  model->PublishWhole({{kId, ToTensor(values)}});
  EXPECT_EQ(model->version(), 3);
  EXPECT_EQ(model->log_bytes(), 0);
  EXPECT_EQ(model.Values(), values);
  EXPECT_EQ(CodecsOf(model.Entries(2)), Codecs{Codec::kFloat32});
}

TEST(PublishedModelTest, WhoReadsAPullKeepsWhatWasPublished) {
  Published model(MakeVariable(kId, {2}, "float32", "int8"));
  model->Capture({{kId, ToTensor({1, 2})}});
  MessageWriter writer(Kind::kPull, 0);
  model->AddEntries(kId, 0, &writer);
  Buffer before(writer.size()), after(writer.size());
  writer.Write(before.data());
  model.Publish({5, 6});
  model->PublishWhole({{kId, ToTensor({7, 8})}});
  writer.Write(after.data());
  EXPECT_EQ(after, before);
}

TEST(PublishedModelTest, ScalesComeWhenTheyHaveChanged) {
  Published model(MakeVariable(kId, {64}, kThc, "float32"));
  model->Capture({{kId, ToTensor(Floats(64, 1))}});
  EXPECT_EQ(model->Scales(kId, 1).version, 0);
  model.Publish(Floats(64, 1));
  model->SetScales(kId, {2});
  model.Publish(Floats(64, 1));
  EXPECT_EQ(CodecsOf(model.Entries(0)),
            (Codecs{Codec::kThcNorms, Codec::kFloat32}));
  EXPECT_EQ(CodecsOf(model.Entries(1)), Codecs{Codec::kThcNorms});
  EXPECT_TRUE(model.Entries(2).empty());
  const Buffer body = model.Entries(1)[0].body;
  const ThcScales scales = DecodeThcScales(body.data(), body.size());
  EXPECT_EQ(scales.version, 2);
  EXPECT_EQ(ToFloats(scales.values), Floats{2});
  model->SetScales(kId, {3});
  EXPECT_EQ(model->Scales(kId, 1).version, 0);
  EXPECT_EQ(ToFloats(model->Scales(kId, 2).values), Floats{2});
  EXPECT_EQ(ToFloats(model->Scales(kId, 3).values), Floats{3});
  EXPECT_EQ(model->Scales(kId, 4).version, 3);
}

TEST(PublishedModelTest, OldScalesAreForgotten) {
  Published model(MakeVariable(kId, {2}, kThc, "float32"));
  constexpr int kKept = (1 << 16) / (sizeof(int64_t) + sizeof(float));
  for (int i = 0; i < kKept + 10; ++i) {
    model.Publish({1, 2});
    model->SetScales(kId, {1});
  }
  EXPECT_EQ(model->version(), kKept + 11);
  EXPECT_EQ(model->Scales(kId, 11).version, 0);
  EXPECT_EQ(model->Scales(kId, 12).version, 12);
}

TEST(PublishedModelTest, OldScalesTakeNoMoreMemoryThanTheirRoom) {
  Published model(MakeVariable(kId, {2}, kThc, "float32"));
  const auto in_use = [] { return mallinfo2().uordblks; };
  const auto before = in_use();
  for (int i = 0; i < 20000; ++i) {
    model.Publish({1, 2});
    model->SetScales(kId, {1});
  }
  EXPECT_LT(in_use(), before + 3 * (1 << 16) / 2);
}

}  // namespace
}  // namespace tf_gc::parameter_server
