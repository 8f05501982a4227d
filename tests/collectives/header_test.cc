#include "ops/wire/header.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/wire/checksum.h"

namespace tf_gc {
namespace {

using ::testing::HasSubstr;

constexpr Header kHeader = {Codec::kThreeLc, Phase::kSum, 0x01020304,
                            0x05060708,      0x11121314,  0x15161718,
                            0x2122,          0x31323334};
constexpr int64_t kMaxSize = 0x3000;

// The same by hand.
std::vector<uint8_t> HeaderBytes() {
  return {
      'T',  'F',  'G',  'C',   // magic number
      11,                      // version
      3,                       // codec: 3LC
      1,                       // phase: sum
      0xa7,                    // check of the size
      0x04, 0x03, 0x02, 0x01,  // piece
      0x08, 0x07, 0x06, 0x05,  // round
      0x14, 0x13, 0x12, 0x11,  // values
      0x18, 0x17, 0x16, 0x15,  // checksum
      0x22, 0x21, 0,    0,     // size
      0x34, 0x33, 0x32, 0x31,  // step
  };
}

absl::Status Read(const std::vector<uint8_t>& bytes, int64_t* size) {
  Header header;
  const absl::Status status =
      ReadHeader(bytes.data(), kHeader, kMaxSize, &header);
  if (status.ok()) *size = static_cast<int64_t>(header.size);
  return status;
}

absl::Status ReadWithSize(uint32_t size, int64_t* read) {
  std::vector<uint8_t> bytes = HeaderBytes();
  for (int i = 0; i < 4; ++i) bytes[24 + i] = size >> (8 * i);
  bytes[7] = SizeCheck(size);
  return Read(bytes, read);
}

TEST(HeaderTest, HeaderIsWrittenByteForByte) {
  std::vector<uint8_t> bytes(kHeaderSize + 1, 0xa5);
  WriteHeader(kHeader, bytes.data());
  std::vector<uint8_t> expected = HeaderBytes();
  expected.push_back(0xa5);
  EXPECT_EQ(bytes, expected);
}

TEST(HeaderTest, CodecsAndPhasesKeepTheirNumbers) {
  EXPECT_EQ(static_cast<int>(Codec::kFloat32), 0);
  EXPECT_EQ(static_cast<int>(Codec::kFloat16), 1);
  EXPECT_EQ(static_cast<int>(Codec::kBfloat16), 2);
  EXPECT_EQ(static_cast<int>(Codec::kThreeLc), 3);
  EXPECT_EQ(static_cast<int>(Codec::kBytes), 4);
  EXPECT_EQ(static_cast<int>(Phase::kContribution), 0);
  EXPECT_EQ(static_cast<int>(Phase::kSum), 1);
}

TEST(HeaderTest, ExpectedHeaderGivesItsSize) {
  int64_t size = 0;
  EXPECT_TRUE(Read(HeaderBytes(), &size).ok());
  EXPECT_EQ(size, 0x2122);
}

TEST(HeaderTest, ChecksumIsReadAndNotCompared) {
  std::vector<uint8_t> bytes = HeaderBytes();
  bytes[20] = 0x19;
  Header header;
  ASSERT_TRUE(ReadHeader(bytes.data(), kHeader, kMaxSize, &header).ok());
  EXPECT_EQ(header.checksum, 0x15161719u);
}

TEST(HeaderTest, ChecksumIsCrc32c) {
  const std::string text = "123456789";  // the check value of the standard
  EXPECT_EQ(Checksum(reinterpret_cast<const uint8_t*>(text.data()), 9),
            0xe3069283u);
}

TEST(HeaderTest, ChecksumOfManyBytesIsThatOfTheirParts) {
  std::vector<uint8_t> bytes(500'000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = (i * 2654435761u) >> 24;
  for (const int64_t size : {49'151, 49'152, 49'160, 98'304, 500'000}) {
    uint32_t in_parts = 0;
    for (int64_t i = 0; i < size; i += 1000) {
      const int64_t part = std::min<int64_t>(1000, size - i);
      in_parts = Checksum(bytes.data() + i, part, in_parts);
    }
    EXPECT_EQ(Checksum(bytes.data(), size), in_parts) << size;
  }
}

TEST(HeaderTest, EveryWrongFieldIsNamed) {
  const struct {
    const char* name;
    int begin, end;
  } fields[] = {{"magic number", 0, 4},
                {"codec", 5, 6},
                {"phase", 6, 7},
                {"piece", 8, 12},
                {"round", 12, 16},
                {"number of values", 16, 20},
                {"check of the size", 7, 8},
                {"check of the size", 24, 28},
                {"optimizer's step", 28, 32}};
  for (const auto& field : fields) {
    for (int i = field.begin; i < field.end; ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        std::vector<uint8_t> bytes = HeaderBytes();
        bytes[i] ^= 1 << bit;
        int64_t size = -1;
        const absl::Status status = Read(bytes, &size);
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
        EXPECT_THAT(std::string(status.message()), HasSubstr(field.name));
        EXPECT_EQ(size, -1);
      }
    }
  }
}

TEST(HeaderTest, OtherVersionIsFailedPreconditionAndNamesBoth) {
  std::vector<uint8_t> bytes = HeaderBytes();
  bytes[4] = 12;
  bytes[5] = 99;  // what else differs comes of the version
  int64_t size;
  const absl::Status status = Read(bytes, &size);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 12"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 11"));
}

TEST(HeaderTest, SizeTooSmallIsDataLossAndAboveTheBoundResourceExhausted) {
  const uint32_t max = kMaxSize;
  for (const uint32_t good : {uint32_t{32}, uint32_t{33}, max}) {
    int64_t size = -1;
    EXPECT_TRUE(ReadWithSize(good, &size).ok());
    EXPECT_EQ(size, static_cast<int64_t>(good));
  }
  for (const uint32_t bad :
       {uint32_t{0}, uint32_t{31}, max + 1, uint32_t{1} << 31,
        std::numeric_limits<uint32_t>::max()}) {
    int64_t size = -1;
    const absl::Status status = ReadWithSize(bad, &size);
    EXPECT_EQ(status.code(), bad > max ? absl::StatusCode::kResourceExhausted
                                       : absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("size is ", bad)));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(bad > max ? absl::StrCat("at most ", max) : "32"));
    EXPECT_EQ(size, -1);
  }
}

}  // namespace
}  // namespace tf_gc
