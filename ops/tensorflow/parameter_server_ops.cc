// The ops of parameter servers and their workers: declarations, shapes and
// documentation.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/tensorflow/inputs.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {
namespace {

using ::tensorflow::PartialTensorShape;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ScalarShape;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status CheckVectorShape(InferenceContext* c, int index) {
  ShapeHandle vector;
  return c->WithRank(c->input(index), 1, &vector);
}

// A handle, no outputs.
absl::Status HandleShape(InferenceContext* c) {
  return CheckScalarShapes(c, 0, 1);
}

// A handle and a message.
absl::Status CheckMessage(InferenceContext* c) {
  TF_RETURN_IF_ERROR(HandleShape(c));
  return CheckVectorShape(c, 1);
}

// A handle and vectors, no outputs.
absl::Status HandleAndVectorsShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(HandleShape(c));
  for (int i = 1; i < c->num_inputs(); ++i) {
    TF_RETURN_IF_ERROR(CheckVectorShape(c, i));
  }
  return absl::OkStatus();
}

// A handle and another scalar, no outputs.
absl::Status TwoScalarsShape(InferenceContext* c) {
  return CheckScalarShapes(c, 0, 2);
}

absl::Status TwoScalarsToScalarShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(TwoScalarsShape(c));
  return ScalarShape(c);
}

absl::Status VectorOfUnknownSize(InferenceContext* c) {
  TF_RETURN_IF_ERROR(HandleShape(c));
  c->set_output(0, c->UnknownShapeOfRank(1));
  return absl::OkStatus();
}

absl::Status PullShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckMessage(c));
  return VectorOfUnknownSize(c);
}

// A handle and a message; two scalars.
absl::Status MessageToScalarsShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckMessage(c));
  c->set_output(0, c->Scalar());
  c->set_output(1, c->Scalar());
  return absl::OkStatus();
}

absl::Status AccumulatePushShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(MessageToScalarsShape(c));
  c->set_output(2, c->Scalar());
  c->set_output(3, c->UnknownShapeOfRank(1));
  return absl::OkStatus();
}

absl::Status SettlePushShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckMessage(c));
  TF_RETURN_IF_ERROR(CheckScalarShapes(c, 2, 3));
  return CheckVectorShape(c, 3);
}

// A handle, and an output of the shape in the attribute `shape`.
absl::Status ReadGivenShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(HandleShape(c));
  return tensorflow::shape_inference::ExplicitShape(c);
}

// A handle, and an output that has that shape, or nothing.
absl::Status ReadAnyShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(HandleShape(c));
  return tensorflow::shape_inference::UnknownShape(c);
}

// A list has as many elements as another one.
absl::Status CheckLength(const char* name, size_t length, const char* other,
                         size_t expected) {
  if (length == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must have as many elements as ", other, ", ",
                   expected, ", got ", length));
}

template <typename T>
absl::Status CheckAttribute(InferenceContext* c, const char* name,
                            const char* other, size_t expected) {
  std::vector<T> list;
  TF_RETURN_IF_ERROR(c->GetAttr(name, &list));
  return CheckLength(name, list.size(), other, expected);
}

absl::Status EncodePushShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(VectorOfUnknownSize(c));
  std::vector<ShapeHandle> dense, indices, values, multipliers;
  TF_RETURN_IF_ERROR(c->input("dense", &dense));
  TF_RETURN_IF_ERROR(c->input("sparse_indices", &indices));
  TF_RETURN_IF_ERROR(c->input("sparse_values", &values));
  TF_RETURN_IF_ERROR(c->input("multipliers", &multipliers));
  const size_t n = dense.size();
  TF_RETURN_IF_ERROR(CheckAttribute<int64_t>(c, "ids", "dense", n));
  TF_RETURN_IF_ERROR(CheckAttribute<std::string>(c, "codecs", "dense", n));
  TF_RETURN_IF_ERROR(CheckAttribute<int64_t>(c, "start_steps", "dense", n));
  TF_RETURN_IF_ERROR(CheckAttribute<int64_t>(c, "sparse_ids", "sparse_indices",
                                             indices.size()));
  TF_RETURN_IF_ERROR(CheckAttribute<PartialTensorShape>(
      c, "sparse_shapes", "sparse_indices", indices.size()));
  for (size_t i = 0; i < indices.size(); ++i) {
    ShapeHandle handle;
    tensorflow::shape_inference::DimensionHandle rows;
    TF_RETURN_IF_ERROR(c->WithRank(indices[i], 1, &handle));
    TF_RETURN_IF_ERROR(c->WithRankAtLeast(values[i], 1, &handle));
    TF_RETURN_IF_ERROR(
        c->Merge(c->Dim(indices[i], 0), c->Dim(handle, 0), &rows));
  }
  ShapeHandle vector;
  tensorflow::shape_inference::DimensionHandle size;
  TF_RETURN_IF_ERROR(c->WithRank(multipliers[0], 1, &vector));
  return c->WithValue(c->Dim(vector, 0), n, &size);
}

absl::Status GetShapes(InferenceContext* c, const char* name,
                       std::vector<ShapeHandle>* handles) {
  std::vector<PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(c->GetAttr(name, &shapes));
  for (const PartialTensorShape& shape : shapes) {
    if (!shape.IsFullyDefined()) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " must be fully defined, got ", shape.DebugString()));
    }
    ShapeHandle handle;
    TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(shape, &handle));
    handles->push_back(handle);
  }
  return absl::OkStatus();
}

absl::Status TakeGradientsShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckMessage(c));
  std::vector<ShapeHandle> dense, sparse;
  TF_RETURN_IF_ERROR(GetShapes(c, "shapes", &dense));
  TF_RETURN_IF_ERROR(GetShapes(c, "sparse_shapes", &sparse));
  TF_RETURN_IF_ERROR(CheckAttribute<int64_t>(c, "ids", "shapes", dense.size()));
  TF_RETURN_IF_ERROR(
      CheckAttribute<int64_t>(c, "sparse_ids", "sparse_shapes", sparse.size()));
  TF_RETURN_IF_ERROR(c->set_output("dense", dense));
  std::vector<ShapeHandle> moments, indices, values;
  for (size_t i = 0; i < dense.size(); ++i) {
    moments.push_back(c->UnknownShape());
  }
  TF_RETURN_IF_ERROR(c->set_output("second_moments", moments));
  for (const ShapeHandle& shape : sparse) {
    ShapeHandle row, rows;
    TF_RETURN_IF_ERROR(c->WithRankAtLeast(shape, 1, &rows));
    TF_RETURN_IF_ERROR(c->Subshape(shape, 1, &row));
    indices.push_back(c->UnknownShapeOfRank(1));
    TF_RETURN_IF_ERROR(c->Concatenate(indices.back(), row, &rows));
    values.push_back(rows);
  }
  TF_RETURN_IF_ERROR(c->set_output("sparse_indices", indices));
  return c->set_output("sparse_values", values);
}

absl::Status EndUpdateShape(InferenceContext* c) {
  std::vector<int64_t> ids;
  TF_RETURN_IF_ERROR(c->GetAttr("ids", &ids));
  const int last = c->num_inputs() - 1;
  TF_RETURN_IF_ERROR(CheckScalarShapes(c, 0, last));
  ShapeHandle vector;
  tensorflow::shape_inference::DimensionHandle size;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(last), 1, &vector));
  TF_RETURN_IF_ERROR(c->WithValue(c->Dim(vector, 0), ids.size(), &size));
  return ScalarShape(c);
}

absl::Status ServerStatisticsShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(HandleShape(c));
  c->set_output(0, c->Vector(13));
  for (int i = 1; i < c->num_outputs(); ++i) {
    c->set_output(i, c->UnknownShapeOfRank(1));
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("TfGc>CleanUp")
    .Attr("container: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Frees all that this process has in a container, and that no op uses any more.

container: Its name, that of ParameterServer and LocalModel.
)doc");

REGISTER_OP("TfGc>ParameterServer")
    .Attr("container: string = ''")
    .Attr("shared_name: string")
    .Attr("synchronous: bool")
    .Attr("pushes_per_round: int >= 1")
    .Attr("max_staleness: int")
    .Attr("updates_per_version: int >= 0")
    .Attr("lease_seconds: float")
    .Output("server: resource")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Makes a parameter server's part of compressed training, or finds it.

It holds the published model, from which workers pull what has changed, each
change compressed once per version for all of them; and the round, in which
their pushes are collected.

container: Where it is kept till CleanUp, or till another program begins: the name
  of a program that no other has, a slash, and more.
shared_name: Name of the server in this process; one per run of a program.
synchronous: Whether pushes are collected in rounds, each of which makes one
  update; otherwise every push makes one.
pushes_per_round: How many pushes make a round.
max_staleness: Asynchronously, how many versions behind a push may be, without
  those of what training steps have written; negative for any number.
updates_per_version: Asynchronously, how many updates make a version; 0 for as many
  as the load asks for.
lease_seconds: How long the update of a round may take before the next worker
  that pushes is asked to make it.
server: Handle for the other ops.
)doc");

REGISTER_OP("TfGc>AddVariable")
    .Input("server: resource")
    .Input("variable: resource")
    .Attr("id: int")
    .Attr("variable_name: string")
    .Attr("shape: shape")
    .Attr("push: string")
    .Attr("pull: string")
    .Attr("start_step: int")
    .SetIsStateful()
    .SetShapeFn(TwoScalarsShape)
    .Doc(R"doc(
Adds a variable to those that a server publishes.

server: Handle from ParameterServer.
variable: Handle of a variable on the same device. What is pulled or published
  must be float32; till it is initialized, and when it is gone, it is left out.
id: Number of the variable, less than 2^32, the same in all processes.
variable_name: Its name, for error messages.
shape: Its shape, fully defined.
push: Codec of its gradients. That of 3LC may have statistics: "three_lc rows=128
  decay=0.999", with the rows of the matrix that the variable is seen as, and
  is quantised in the units that follow from them, but with units=0.
pull: Codec of its changes; float32 is pulled as a whole.
start_step: These are used once the model has seen so many updates; before,
  everything is float32.
)doc");

REGISTER_OP("TfGc>LocalModel")
    .Attr("container: string = ''")
    .Attr("shared_name: string")
    .Output("model: resource")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Makes a worker's copy of what one server publishes, or finds it.

It holds the copies of the variables, with their version, and the residuals of
the worker's pushes.

container: As that of ParameterServer.
shared_name: Name of the copy in this process; one per server and run of a
  program.
model: Handle for the other ops.
)doc");

REGISTER_OP("TfGc>PullRequest")
    .Input("model: resource")
    .Attr("ids: list(int)")
    .Output("request: int64")
    .SetIsStateful()
    .SetShapeFn(VectorOfUnknownSize)
    .Doc(R"doc(
Says which versions a worker has.

model: Handle from LocalModel.
ids: Variables that are to be pulled.
request: A vector: the version of the model; for how many microseconds the server
  may wait for a newer one; then, for each variable with another version, its id
  and that version, 0 if there is no copy.
)doc");

REGISTER_OP("TfGc>Pull")
    .Input("server: resource")
    .Input("request: int64")
    .Input("read_after: M * resource")
    .Attr("M: int >= 0")
    .Attr("ids: list(int)")
    .Output("message: uint8")
    .SetIsStateful()
    .SetShapeFn(PullShape)
    .Doc(R"doc(
Gives what a worker lacks of the published model.

Asynchronously it publishes a version first, if one is due. In rounds, if there
is nothing new, it waits for the next version as long as the request says.

server: Handle from ParameterServer.
request: From PullRequest.
read_after: Handles of variables that are not pulled, so that reading them comes
  after this op: they are of the version that it has waited for.
ids: Variables to pull, the same as for PullRequest.
message: A vector of bytes for ApplyPull.
)doc");

REGISTER_OP("TfGc>ApplyPull")
    .Input("model: resource")
    .Input("message: uint8")
    .Attr("ids: list(int)")
    .Attr("shapes: list(shape)")
    .Output("version: int64")
    .Output("step: int64")
    .SetIsStateful()
    .SetShapeFn(MessageToScalarsShape)
    .Doc(R"doc(
Makes a worker's copies of variables those of a newer version.

All of the message is checked before anything is changed. What was pulled before
another pull of the same variables was applied changes nothing.

model: Handle from LocalModel.
message: From Pull.
ids: Variables that were pulled, the same as for PullRequest.
shapes: Their shapes, fully defined.
version: The version of the model now, a scalar.
step: The number of updates that this version has seen, a scalar.
)doc");

REGISTER_OP("TfGc>ReadModel")
    .Input("model: resource")
    .Attr("id: int")
    .Attr("shape: shape")
    .Output("value: float")
    .SetIsStateful()
    .SetShapeFn(ReadGivenShape)
    .Doc(R"doc(
Gives a worker's copy of a variable, without copying it.

model: Handle from LocalModel.
id: The variable.
shape: Its shape, fully defined.
value: The values of the model's version, of this shape.
)doc");

REGISTER_OP("TfGc>EncodePush")
    .Input("model: resource")
    .Input("dense: N * float")
    .Input("sparse_indices: S * int64")
    .Input("sparse_values: S * float")
    .Input("multipliers: float")
    .Attr("N: int >= 0")
    .Attr("S: int >= 0")
    .Attr("ids: list(int)")
    .Attr("codecs: list(string)")
    .Attr("start_steps: list(int)")
    .Attr("sparse_ids: list(int)")
    .Attr("sparse_shapes: list(shape)")
    .Attr("row_bits: int = 0")
    .Attr("row_start_step: int = 0")
    .Attr("row_seed: int = 0")
    .Attr("channel: int >= 0 = 0")
    .Output("push: uint8")
    .SetIsStateful()
    .SetShapeFn(EncodePushShape)
    .Doc(R"doc(
Compresses a worker's gradients, each plus its residual.

What is not delivered becomes the new residual: gradient + old residual =
delivered + new residual. Where gradient plus residual is not finite the old one
stays. Sparse gradients have no residuals.

model: Handle from LocalModel.
dense: Gradients, of any shapes.
sparse_indices: Vectors: the rows that sparse gradients have.
sparse_values: The values of these rows.
multipliers: A vector: by dense gradient, the multiplier s of 3LC's scale, 0 < s <
  2, or 64 for that of the mean or unit; not looked at for other codecs.
ids: The variables of the dense gradients.
codecs: The codecs of the dense gradients.
start_steps: These are used once the model has seen so many updates; before,
  gradients travel as float32.
sparse_ids: The variables of the sparse gradients.
sparse_shapes: Their shapes, fully defined.
row_bits: 0, where sparse gradients travel as they are. Else rows of one index are
  added up, and packed: values in 32 bits exactly, or drawn in 2, 3, 4, 5 or 8.
row_start_step: These are used once the model has seen so many updates; before,
  packed rows are exact.
row_seed: What rows are drawn with, and the number of the worker's task.
channel: Which rounds the push belongs to: of one of several optimizers.
push: A vector of bytes for AccumulatePush.
)doc");

REGISTER_OP("TfGc>AccumulatePush")
    .Input("server: resource")
    .Input("push: uint8")
    .Attr("master: bool")
    .Output("accepted: bool")
    .Output("ready: bool")
    .Output("round: int64")
    .Output("counted: int64")
    .SetIsStateful()
    .SetShapeFn(AccumulatePushShape)
    .Doc(R"doc(
Adds a worker's gradients to the round, once, however often a push comes.

server: Handle from ParameterServer.
push: From EncodePush.
master: Whether this server, of several, says when a round is complete.
accepted: A scalar: whether the push counts. In rounds it does if it was computed
  on the last version that an update of its channel has published, or a later
  one, and no update of the channel is under way; asynchronously, if it is not
  too stale.
ready: A scalar: whether the worker now makes an update, from BeginUpdate (in
  rounds) to EndUpdate. In rounds that is the one whose push completes the round,
  or, if that worker takes longer than the lease, the next one that pushes.
round: A scalar: the number of the round.
counted: A vector: the sequence numbers of those earlier pushes of this worker that
  took part in an update, among those that it had no answer to. The others will
  not, even if they come late.
)doc");

REGISTER_OP("TfGc>TakeGradients")
    .Input("server: resource")
    .Input("push: uint8")
    .Attr("ids: list(int)")
    .Attr("shapes: list(shape)")
    .Attr("sparse_ids: list(int)")
    .Attr("sparse_shapes: list(shape)")
    .Attr("N: int >= 0")
    .Attr("S: int >= 0")
    .Output("dense: N * float")
    .Output("second_moments: N * float")
    .Output("sparse_indices: S * int64")
    .Output("sparse_values: S * float")
    .SetIsStateful()
    .SetShapeFn(TakeGradientsShape)
    .Doc(R"doc(
Gives the mean of a round's pushes, or asynchronously what one push holds.

In rounds, from BeginUpdate to EndUpdate, it gives the same again.

server: Handle from ParameterServer.
push: From EncodePush; looked at asynchronously alone.
ids: Variables with dense gradients.
shapes: Their shapes, fully defined.
sparse_ids: Variables with sparse gradients.
sparse_shapes: Their shapes, fully defined.
dense: Gradients of `ids`; zeros for those that no push had.
second_moments: What to expect of the squares of `dense`, from the statistics in
  the pushes; zeros if no push had any, NaN where `dense` is not finite. An empty
  vector for a variable whose codec has none.
sparse_indices: Vectors: the rows of the gradients of `sparse_ids`, of one push
  after the other.
sparse_values: The values of these rows.
)doc");

REGISTER_OP("TfGc>BeginUpdate")
    .Input("server: resource")
    .Input("round: int64")
    .Attr("channel: int >= 0 = 0")
    .Output("is_open: bool")
    .SetIsStateful()
    .SetShapeFn(TwoScalarsToScalarShape)
    .Doc(R"doc(
Closes a round till EndUpdate, for its update.

server: Handle from ParameterServer.
round: Its number, a scalar.
channel: Whose round it is.
is_open: A scalar: false if the update has been made already, by another worker
  that had the lease.
)doc");

REGISTER_OP("TfGc>EndUpdate")
    .Input("server: resource")
    .Input("round: int64")
    .Input("updated: M * resource")
    .Input("multipliers: float")
    .Attr("M: int >= 0")
    .Attr("ids: list(int)")
    .Attr("channel: int >= 0 = 0")
    .Output("version: int64")
    .SetIsStateful()
    .SetShapeFn(EndUpdateShape)
    .Doc(R"doc(
Ends an update of the variables.

In rounds it publishes the next version, opens the channel's next round, and
answers the pulls that wait for it, unless that was done before. Asynchronously it
counts the update: once enough of them have been made, the next pull publishes
what has been pulled before.

server: Handle from ParameterServer.
round: Its number, a scalar; not looked at asynchronously.
updated: Handles of the variables that the update has written to, so that this
  op comes after it.
multipliers: A vector: by variable of `ids`, the multiplier s of 3LC's scale of
  its changes, 0 < s < 2, or 64 for that of the mean or unit; not looked at for
  other codecs.
ids: Variables that are published, if they have changed.
channel: Whose round it was.
version: The server's version now, a scalar.
)doc");

REGISTER_OP("TfGc>PublishWhole")
    .Input("server: resource")
    .Attr("ids: list(int)")
    .Attr("outdated: list(int) = []")
    .SetIsStateful()
    .SetShapeFn(HandleShape)
    .Doc(R"doc(
Publishes a new version with variables as they are, uncompressed.

For what has been written to them by other means than an update.

server: Handle from ParameterServer.
ids: The variables.
outdated: Those whose pushes of rounds without an update yet are forgotten, as
  are pushes to come that were computed before; without rounds nothing is.
)doc");

REGISTER_OP("TfGc>SettlePush")
    .Input("model: resource")
    .Input("push: uint8")
    .Input("accepted: bool")
    .Input("counted: int64")
    .SetIsStateful()
    .SetShapeFn(SettlePushShape)
    .Doc(R"doc(
Tells a worker's copy what has become of a push, and of earlier ones of its channel
that had no answer.

What the server did not take goes back into the residuals, and is part of the next
push; but for values that are not finite.

model: Handle from LocalModel.
push: From EncodePush, of the same model.
accepted: A scalar, from AccumulatePush.
counted: A vector, from AccumulatePush.
)doc");

REGISTER_OP("TfGc>UnsettledPushes")
    .Input("model: resource")
    .Output("unsettled: int64")
    .SetIsStateful()
    .SetShapeFn(VectorOfUnknownSize)
    .Doc(R"doc(
Lists a worker's pushes that no answer has come to.

model: Handle from LocalModel.
unsettled: A vector: the worker's number, then the channel and the sequence number
  of each push.
)doc");

REGISTER_OP("TfGc>CountedPushes")
    .Input("server: resource")
    .Input("unsettled: int64")
    .Output("counted: int64")
    .SetIsStateful()
    .SetShapeFn(PullShape)
    .Doc(R"doc(
Says which of a worker's pushes take part in an update by now. The others may yet.

server: Handle from ParameterServer.
unsettled: From UnsettledPushes.
counted: A vector: their sequence numbers.
)doc");

REGISTER_OP("TfGc>SettleUnsettled")
    .Input("model: resource")
    .Input("unsettled: int64")
    .Input("counted: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckMessage(c));
      return CheckVectorShape(c, 2);
    })
    .Doc(R"doc(
Tells a worker's copy which of the pushes that no answer has come to have counted.

What the others carry is part of what ReadResidual reads, till they are settled.

model: Handle from LocalModel.
unsettled: From UnsettledPushes, of the same model.
counted: From CountedPushes.
)doc");

REGISTER_OP("TfGc>ForgetVariables")
    .Input("server: resource")
    .Input("ids: int64")
    .Input("channels: int64")
    .SetIsStateful()
    .SetShapeFn(HandleAndVectorsShape)
    .Doc(R"doc(
Frees what a server has of variables, when these are gone.

Pulls and updates may still name them, and leave them out.

server: Handle from ParameterServer.
ids: A vector: the variables.
channels: A vector: those that are gone with the last of their variables.
)doc");

REGISTER_OP("TfGc>ForgetCopies")
    .Input("model: resource")
    .Input("ids: int64")
    .SetIsStateful()
    .SetShapeFn(HandleAndVectorsShape)
    .Doc(R"doc(
Frees a worker's copies of variables, and what it has kept for their pushes.

model: Handle from LocalModel.
ids: A vector: the variables.
)doc");

REGISTER_OP("TfGc>SetServerStep")
    .Input("server: resource")
    .Input("step: int64")
    .SetIsStateful()
    .SetShapeFn(TwoScalarsShape)
    .Doc(R"doc(
Sets how many updates a server's variables have seen, in programs before this
one too.

server: Handle from ParameterServer.
step: Their number, a scalar.
)doc");

REGISTER_OP("TfGc>ServerStatistics")
    .Input("server: resource")
    .Output("counters: int64")
    .Output("ids: int64")
    .Output("values_pushed: int64")
    .Output("bytes_pushed: int64")
    .Output("second_moment_bytes_pushed: int64")
    .Output("values_pulled: int64")
    .Output("bytes_pulled: int64")
    .SetIsStateful()
    .SetShapeFn(ServerStatisticsShape)
    .Doc(R"doc(
Counts what a server has done so far.

server: Handle from ParameterServer.
counters: A vector: the version; updates, with those of programs before; updates;
  pushes accepted; pushes dropped; pulls; bytes of all pushes; bytes of all
  pulls; versions for which something was compressed; bytes kept for workers that
  are behind; pushes in the open round; leases that were passed on; pulls that
  wait now.
ids: A vector: the variables, ascending. What follows are vectors by variable.
values_pushed: Values that pushes stood for.
bytes_pushed: Bytes that they took.
second_moment_bytes_pushed: Those of them that were statistics.
values_pulled: Values of the variable, once for each pull of it, whether or not
  it was new.
bytes_pulled: Bytes that these pulls took.
)doc");

REGISTER_OP("TfGc>ReadResidual")
    .Input("model: resource")
    .Attr("id: int")
    .Attr("shape: shape")
    .Output("value: float")
    .SetIsStateful()
    .SetShapeFn(ReadAnyShape)
    .Doc(R"doc(
Gives what waits for a worker's next push of a variable.

model: Handle from LocalModel.
id: The variable.
shape: Its shape, fully defined.
value: The residual, of this shape; empty, of shape [0], if nothing waits.
)doc");

REGISTER_OP("TfGc>WriteResidual")
    .Input("model: resource")
    .Input("value: float")
    .Attr("id: int")
    .SetIsStateful()
    .SetShapeFn(HandleShape)
    .Doc(R"doc(
Sets what a worker's next push of a variable adds to the gradient.

model: Handle from LocalModel.
value: The residual, of the variable's shape; empty if nothing waits.
id: The variable.
)doc");

REGISTER_OP("TfGc>ReadSecondMoment")
    .Input("model: resource")
    .Attr("id: int")
    .Attr("shape: shape")
    .Output("value: float")
    .SetIsStateful()
    .SetShapeFn(ReadGivenShape)
    .Doc(R"doc(
Gives the statistics of the gradients that a worker has pushed of a variable.

model: Handle from LocalModel.
id: The variable.
shape: That of a vector of rows + columns + 1 values.
value: The decayed means of squares of the rows and then of the columns, and the
  weight of what is in them; zeros before the first gradient.
)doc");

REGISTER_OP("TfGc>WriteSecondMoment")
    .Input("model: resource")
    .Input("value: float")
    .Attr("id: int")
    .SetIsStateful()
    .SetShapeFn(HandleShape)
    .Doc(R"doc(
Sets the statistics of the gradients that a worker has pushed of a variable.

model: Handle from LocalModel.
value: A vector as ReadSecondMoment gives it.
id: The variable.
)doc");

REGISTER_OP("TfGc>ReadRound")
    .Input("server: resource")
    .Attr("id: int")
    .Attr("shape: shape")
    .Output("value: float")
    .SetIsStateful()
    .SetShapeFn(ReadAnyShape)
    .Doc(R"doc(
Gives the sum of a variable's gradients in the open round.

server: Handle from ParameterServer.
id: The variable.
shape: Its shape, fully defined.
value: The sum of the accepted pushes, of this shape; empty, of shape [0], if they
  had nothing of it, or that is not finite.
)doc");

REGISTER_OP("TfGc>LibraryVersion")
    .Output("version: string")
    // Not a constant: it is that of the process in which it runs.
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Names the library that a process has loaded.

version: A scalar: the version of the wire format, a space, and that of TensorFlow.
)doc");

}  // namespace tf_gc
