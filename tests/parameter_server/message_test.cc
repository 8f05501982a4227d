#include "ops/parameter_server/message.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/parameter_server/buffers.h"
#include "ops/parameter_server/varint.h"
#include "tests/parameter_server/testing.h"

namespace tf_gc::parameter_server {
namespace {

tensorflow::Tensor ToBytes(const Buffer& bytes) {
  tensorflow::Tensor tensor = NewBytes(bytes.size());
  std::copy(bytes.begin(), bytes.end(), BytesOf(&tensor));
  return tensor;
}

Buffer Write(const MessageWriter& writer) {
  Buffer message(writer.size());
  writer.Write(message.data());
  return message;
}

Buffer ExampleMessage() {
  MessageWriter writer(Kind::kPull, 0x01020304);
  writer.set_version(0x1112131415, 0x161718);
  writer.set_number({0x0700000000000908, 0x0506, {0x0504, 0x0505}});
  writer.Add(5, Codec::kThreeLc, ToBytes({1, 2, 3, 99}), 3);
  writer.Add(300, Codec::kFloat32, ToTensor({1}));
  writer.Add(300, Codec::kThcNorms, NewFloats(0));
  return Write(writer);
}

// The same by hand.
Buffer ExampleBytes() {
  return {
      'T',  'F',  'G',  'C',                        // magic number
      11,                                           // version
      0x21,                                         // pull
      0,    0,                                      // reserved
      3,    0,    0,    0,                          // entries
      4,    3,    2,    1,                          // tag
      0x15, 0x14, 0x13, 0x12, 0x11, 0, 0,    0,     // version of the model
      0x18, 0x17, 0x16, 0,    0,    0, 0,    0,     // step of the model
      98,   0,    0,    0,    0,    0, 0,    0,     // size
      0x95, 0x56, 0xa0, 0x70,                       // checksum
      2,    0,    0,    0,                          // unsettled
      8,    9,    0,    0,    0,    0, 0,    7,     // worker
      6,    5,    0,    0,    0,    0, 0,    0,     // sequence number
      4,    5,    0,    0,    0,    0, 0,    0,     // unsettled ones
      5,    5,    0,    0,    0,    0, 0,    0,     //
      5,    3,    3,    1,    2,    3,              // three bytes of 3LC
      0xac, 2,    0,    4,    0,    0, 0x80, 0x3f,  // 300 = 0x2c + 2 * 128
      0xac, 2,    12,   0,
  };
}

absl::Status Read(Kind kind, const Buffer& bytes, Message* message) {
  return ReadMessage(kind, bytes.data(), bytes.size(), message);
}

TEST(VarintTest, EveryLengthComesBack) {
  std::vector<uint64_t> values = {0, 1, 127, 128, 300, UINT64_MAX};
  for (int shift = 7; shift < 64; ++shift) {
    values.push_back((uint64_t{1} << shift) - 1);
    values.push_back(uint64_t{1} << shift);
  }
  for (const uint64_t value : values) {
    Buffer bytes(VarintSize(value));
    EXPECT_EQ(WriteVarint(value, bytes.data()), bytes.data() + bytes.size());
    const uint8_t* at = bytes.data();
    uint64_t read;
    EXPECT_TRUE(ReadVarint(&at, at + bytes.size(), &read));
    EXPECT_EQ(read, value);
    EXPECT_EQ(at, bytes.data() + bytes.size());
    at = bytes.data();
    EXPECT_FALSE(ReadVarint(&at, at + bytes.size() - 1, &read));
  }
}

TEST(VarintTest, WhatNobodyWritesIsRefused) {
  const Buffer longer_than_needed = {0x80, 0};
  const Buffer too_large = {0xff, 0xff, 0xff, 0xff, 0xff,
                            0xff, 0xff, 0xff, 0xff, 2};
  for (const Buffer& bytes :
       {longer_than_needed, too_large, Buffer(11, 0x80)}) {
    const uint8_t* at = bytes.data();
    uint64_t read;
    EXPECT_FALSE(ReadVarint(&at, at + bytes.size(), &read));
  }
}

TEST(MessageTest, IsWrittenByteForByte) {
  EXPECT_EQ(ExampleMessage(), ExampleBytes());
}

TEST(MessageTest, IsReadAsItWasWritten) {
  const Buffer bytes = ExampleBytes();
  Message message;
  ExpectOk(Read(Kind::kPull, bytes, &message));
  EXPECT_EQ(message.tag, 0x01020304);
  EXPECT_EQ(message.version, 0x1112131415);
  EXPECT_EQ(message.step, 0x161718);
  ASSERT_EQ(message.entries.size(), 3);
  EXPECT_EQ(message.entries[0].id, 5);
  EXPECT_EQ(message.entries[0].codec, Codec::kThreeLc);
  EXPECT_EQ(message.number.worker, 0x0700000000000908);
  EXPECT_EQ(message.number.sequence, 0x0506);
  EXPECT_EQ(message.number.unsettled, (std::vector<uint64_t>{0x0504, 0x0505}));
  EXPECT_EQ(message.entries[0].body, bytes.data() + 83);
  EXPECT_EQ(message.entries[0].size, 3);
  EXPECT_EQ(message.entries[1].id, 300);
  EXPECT_EQ(message.entries[1].size, 4);
  EXPECT_EQ(message.entries[2].codec, Codec::kThcNorms);
  EXPECT_EQ(message.entries[2].size, 0);
}

TEST(MessageTest, EveryWrongFieldIsNamed) {
  const struct {
    const char* words;
    int byte, value;
  } cases[] = {
      {"magic number", 0, 'X'},
      {"the kind is 32", 5, 0x20},
      {"reserved field", 6, 1},
      {"reserved field", 7, 1},
      {"number of entries", 11, 1},
      {"entry 3 is damaged", 8, 4},
      {"bytes behind the last entry", 8, 2},
      {"the version of the model", 23, 0x80},
      {"the step of the model", 31, 0x80},
      {"the size", 32, 99},
      {"the size", 39, 1},
      {"number of unsettled pushes", 44, 5},
      {"the codec of entry 0 is 14", 81, 14},
      {"the codec of entry 0 is 9", 81, 9},
      {"the size of entry 0", 82, 0x7f},
  };
  for (const auto& c : cases) {
    Buffer bytes = ExampleBytes();
    bytes[c.byte] = c.value;
    SealMessage(bytes.data(), bytes.size());
    Message message;
    ExpectDataLoss(Read(Kind::kPull, bytes, &message), c.words);
  }
}

TEST(MessageTest, OtherWireVersionIsFailedPrecondition) {
  Buffer bytes = ExampleBytes();
  ++bytes[4];
  Message message;
  EXPECT_TRUE(absl::IsFailedPrecondition(Read(Kind::kPull, bytes, &message)));
}

TEST(MessageTest, DamagedMessagesAreErrorsOrHaveTheirBodiesWithin) {
  ForEachDamage(ExampleBytes(), [](Buffer bytes) {
    SealIfMessage(&bytes);
    Message message;
    const absl::Status status = Read(Kind::kPull, bytes, &message);
    if (!status.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(status) ||
                  absl::IsFailedPrecondition(status));
      return;
    }
    EXPECT_EQ(bytes.size(), ExampleBytes().size());
    EXPECT_EQ(message.entries.size(), 3);
    for (const Message::Entry& entry : message.entries) {
      EXPECT_GE(entry.body, bytes.data());
      EXPECT_LE(entry.body + entry.size, bytes.data() + bytes.size());
    }
  });
}

TEST(MessageTest, EveryDamagedBitIsAnError) {
  for (size_t bit = 0; bit < 8 * ExampleBytes().size(); ++bit) {
    Buffer bytes = ExampleBytes();
    bytes[bit / 8] ^= 1 << (bit % 8);
    Message message;
    const absl::Status status = Read(Kind::kPull, bytes, &message);
    EXPECT_EQ(status.code(), bit / 8 == 4
                                 ? absl::StatusCode::kFailedPrecondition
                                 : absl::StatusCode::kDataLoss);
  }
}

TEST(PullRequestTest, ComesBack) {
  PullRequest request;
  request.version = 7;
  request.patience_micros = 1000;
  request.others = {{3, 0}, {UINT32_MAX, 6}};
  const std::vector<int64_t> values = request.ToVector();
  EXPECT_EQ(values, (std::vector<int64_t>{7, 1000, 3, 0, UINT32_MAX, 6}));
  PullRequest read;
  ExpectOk(ReadPullRequest(values.data(), values.size(), &read));
  EXPECT_EQ(read.ToVector(), values);
}

TEST(PullRequestTest, WrongOnesAreInvalid) {
  const std::vector<std::vector<int64_t>> wrong = {
      {}, {1}, {1, 2, 3}, {-1, 0}, {0, -1}, {1, 0, int64_t{1} << 32, 0}};
  for (const std::vector<int64_t>& values : wrong) {
    PullRequest request;
    ExpectInvalid(ReadPullRequest(values.data(), values.size(), &request),
                  "request");
  }
}

TEST(PullRequestTest, FingerprintsTellVersionsApart) {
  std::vector<PullRequest> requests(5);
  requests[1].version = 1;
  requests[2].others = {{1, 0}};
  requests[3].others = {{0, 1}};
  requests[4].others = {{1, 0}, {0, 1}};
  for (size_t i = 0; i < requests.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(requests[i].Fingerprint(), requests[j].Fingerprint());
    }
  }
  PullRequest patient;
  patient.patience_micros = 1000;
  EXPECT_EQ(patient.Fingerprint(), requests[0].Fingerprint());
}

}  // namespace
}  // namespace tf_gc::parameter_server
