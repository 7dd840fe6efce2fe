# The command in an image without a shell, run by a user without rights:
#
#     docker build -t vibrant .
#     docker run -it --rm vibrant                                   # on the CPU
#     docker run -it --rm --gpus all -v "$PWD:/models" vibrant chat -m /models/model.gguf
#
# The driver's libraries come from NVIDIA's container toolkit. CUDA kernels are built where --build-arg DIST_CUDA names toolkits that
# the first stage holds.
FROM golang:1.24-bookworm AS build
ARG DIST_CUDA=none
WORKDIR /src
COPY . .
RUN DIST_ARCH=$(go env GOARCH) DIST_CUDA=$DIST_CUDA scripts/make-dist.sh && scripts/install.sh --prefix /out build/dist

FROM gcr.io/distroless/base-debian12:nonroot
COPY --from=build /out /usr/local
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER nonroot
ENTRYPOINT ["/usr/local/bin/vibrant"]
CMD ["chat"]
