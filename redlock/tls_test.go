package redlock_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"quorate/internal/testenv"
	"quorate/redlock"
)

func TestMastersBehindTLSOfAnAuthorityOfOnesOwn(t *testing.T) {
	cert, authority := certificate(t)
	var urls []string
	for _, m := range testenv.Masters(t, 3) {
		urls = append(urls, "rediss://"+behindTLS(t, m.Addr(), cert))
	}
	l := warm(t, redlock.Options{RestartGuard: -1, TLS: &tls.Config{RootCAs: authority}}, urls)
	for range 10 {
		lease := acquireSoon(t, l, "k", time.Minute)
		if err := lease.Extend(t.Context()); err != nil {
			t.Error(err)
		}
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
	}

	stranger := newLocker(t, ungated, urls)
	_, err := stranger.Acquire(t.Context(), "k", time.Minute, "")
	if !errors.Is(err, redlock.ErrNoQuorum) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("of an authority that nobody knows: %v", err)
	}
}

// behindTLS ends TLS in front of a server, and returns where.
func behindTLS(t *testing.T, server string, cert tls.Certificate) string {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", server)
			if err != nil {
				_ = in.Close()
				continue
			}
			for from, to := range map[net.Conn]net.Conn{in: out, out: in} {
				go func() {
					_, _ = io.Copy(to, from)
					_ = to.Close()
				}()
			}
		}
	}()
	return listener.Addr().String()
}

func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
